//! A profile for pprof, to stdout: `cargo run -p snug-profile --example pprof > profile.pb; go tool pprof -top profile.pb`.

use std::io::Write;

use snug_profile::pprof;
use snug_profile::sites::{Frame, Site};

fn main() -> std::io::Result<()> {
    let frames = vec![Frame::new("Cart#add", "shop.rb", 12), Frame::new("main", "shop.rb", 40)];
    let site = Site { bytes: 5e6, blocks: 100.0, samples: 10, frames, ..Site::default() };
    std::io::stdout().write_all(&pprof::encode(&[site], pprof::LIVE, 0, 60_000_000_000, 524_288))
}
