//! The heap of a process under snug, by its page of counters: `cargo run -p snug-heap --example heap PID`.

use std::path::Path;

use snug_base::elf;
use snug_heap::account::Heap;
use snug_heap::remote;
use snug_process::maps::parse_maps;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = std::env::args().nth(1).ok_or("give the PID of a process under snug")?.parse()?;
    let text = std::fs::read(format!("/proc/{pid}/maps"))?;
    let maps = parse_maps(&text);
    let library =
        maps.iter().find(|mapping| mapping.path.ends_with("/libsnug.so")).ok_or("it has no libsnug.so")?;
    let elf =
        elf::read(Path::new(&library.path), &|name| name == "snug_counters")?.ok_or("it is no ELF file")?;
    let images = std::iter::once((library.path.as_str(), &elf));
    let page = remote::find_page(pid, &maps, &text, images, None).ok_or("there is no page of counters")?;
    let heap = Heap::from_account(&remote::read_account(pid, page, 1)?);
    println!("live {} bytes, at most {} resident", heap.live_requested_bytes, heap.resident_bytes);
    Ok(())
}
