//! Processes that wait for connections, as servers do.

use std::fs;

use crate::proc::Pid;

/// Whether it has a TCP socket that listens. False, too, if the process may not be looked at.
pub fn listens(pid: Pid) -> bool {
    let table = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let sockets: Vec<String> = ["tcp", "tcp6"].iter().flat_map(|name| listening(&table(name))).collect();
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let targets = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.into_iter().any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

/// The sockets of a table of TCP connections that listen, as the links of descriptors name them.
fn listening(table: &str) -> Vec<String> {
    const STATE: usize = 3;
    const INODE: usize = 9;
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.get(STATE) == Some(&"0A"))
        .filter_map(|row| row.get(INODE).map(|inode| format!("socket:[{inode}]")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_process_with_a_listener_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listens(std::process::id() as Pid));
        drop(listener);
        assert!(!listens(-1));
    }

    #[test]
    fn a_connection_is_no_listener() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100\n   \
            1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20\n";
        assert_eq!(listening(table), ["socket:[4711]"]);
        assert!(listening("").is_empty());
    }
}
