//! Mappings of a process: lines of `/proc/PID/maps`. Pure.

/// One line of `/proc/PID/maps` that has a file behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub writable: bool,
    pub executable: bool,
    pub path: String,
    /// The file was removed or replaced after it was mapped.
    pub deleted: bool,
}

/// A path as the process knows it: a root that it changed shows in what the kernel lists.
pub fn inside(changed_root: &str, path: String) -> String {
    match path.strip_prefix(changed_root) {
        Some(rest) if rest.starts_with('/') => rest.to_string(),
        _ => path,
    }
}

/// Reads the file-backed lines of `/proc/PID/maps`.
pub fn parse_maps(text: &[u8]) -> Vec<Mapping> {
    let text = String::from_utf8_lossy(text);
    text.lines().filter_map(parse_maps_line).collect()
}

fn parse_maps_line(line: &str) -> Option<Mapping> {
    let path_start = line.find('/')?;
    let mut words = line[..path_start].split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?;
    let offset = words.next()?;
    let path = &line[path_start..];
    let (path, deleted) = match path.strip_suffix(" (deleted)") {
        Some(path) => (path, true),
        None => (path, false),
    };
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        writable: permissions.as_bytes().get(1) == Some(&b'w'),
        executable: permissions.as_bytes().get(2) == Some(&b'x'),
        path: path.to_string(),
        deleted,
    })
}

/// Anonymous memory that the process may write, up to where other memory or none follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    /// Grown by brk(2).
    pub is_brk: bool,
}

/// Reads the anonymous writable private regions of `/proc/PID/maps`, without stacks. Neighbours become one.
pub fn parse_regions(text: &[u8]) -> Vec<Region> {
    let text = String::from_utf8_lossy(text);
    let mut regions: Vec<Region> = Vec::new();
    for region in text.lines().filter_map(parse_region) {
        match regions.last_mut() {
            Some(last) if last.end == region.start && last.is_brk == region.is_brk => last.end = region.end,
            _ => regions.push(region),
        }
    }
    regions
}

fn parse_region(line: &str) -> Option<Region> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?;
    let inode = words.nth(2)?;
    let name = words.next().unwrap_or_default();
    let anonymous = inode == "0" && (name.is_empty() || name == "[heap]" || name.starts_with("[anon"));
    if !anonymous || !permissions.starts_with("rw") || !permissions.ends_with('p') {
        return None;
    }
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some(Region { start: address(start)?, end: address(end)?, is_brk: name == "[heap]" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_with_spaces_and_deleted_files() {
        let text = b"7f00-7f10 r-xp 00001000 fe:00 99   /opt/my lib/libx.so (deleted)\n\
            7f20-7f30 rw-p 00000000 00:00 0 \n7f30-7f40 rw-p 00002000 fe:00 98 /lib/liby.so\n";
        let maps = parse_maps(text);
        assert_eq!(maps.len(), 2);
        assert_eq!(maps[0].path, "/opt/my lib/libx.so");
        assert!(maps[0].deleted && maps[0].executable && !maps[0].writable);
        assert_eq!((maps[1].start, maps[1].end, maps[1].offset), (0x7f30, 0x7f40, 0x2000));
        assert!(maps[1].writable && !maps[1].deleted);
    }

    #[test]
    fn anonymous_regions() {
        let maps = b"1000-2000 rw-p 00000000 fe:00 7 /bin/app\n2000-3000 rw-p 00000000 00:00 0 \n\
            3000-4000 rw-p 00000000 00:00 0 [heap]\n4000-6000 rw-p 00000000 00:00 0 [heap]\n\
            7000-8000 rw-p 00000000 00:00 0 \n8000-9000 rw-p 00000000 00:00 0 [anon: glibc: malloc]\n\
            a000-b000 ---p 00000000 00:00 0 \nb000-c000 rw-s 00000000 00:01 9 /dev/zero (deleted)\n\
            d000-e000 rw-p 00000000 00:00 0 [stack]\n";
        let region = |start, end, is_brk| Region { start, end, is_brk };
        let expected =
            [region(0x2000, 0x3000, false), region(0x3000, 0x6000, true), region(0x7000, 0x9000, false)];
        assert_eq!(parse_regions(maps), expected);
    }
}
