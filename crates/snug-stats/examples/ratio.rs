//! The ratio of two samples with its interval: `cargo run -p snug-stats --example ratio`.

fn main() {
    let (before, after) =
        ([412.0, 420.5, 409.8, 431.0, 418.2, 415.9], [301.2, 310.0, 299.4, 305.7, 308.8, 303.1]);
    let Some(ratio) = snug_stats::ratio(&after, &before) else { return };
    let (low, high) = ratio.interval.unwrap_or_default();
    println!("{:.3} times ({low:.3} to {high:.3} with 95 % confidence)", ratio.value);
}
