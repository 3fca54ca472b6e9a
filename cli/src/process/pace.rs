//! When to look at processes again. Pure: told what looking cost.

/// When to look next: at first every few milliseconds, so that short programs are seen, then at a regular
/// interval, and never so often that looking costs more than its share of a core.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    interval_s: f64,
    share: f64,
    gap_s: f64,
    /// CPU time of all looks so far.
    spent_s: f64,
    longest_gap_s: f64,
    pub next_s: f64,
}

impl Pace {
    /// The first gap: a program that ends within it is seen once.
    const FIRST_GAP_S: f64 = 0.001;
    /// And each further one is longer by this factor, up to the interval.
    const GROWTH: f64 = 1.5;
    /// Until then it may cost so many times the share.
    const FIRST_SHARES: f64 = 50.0;
    /// What the first looks cost above the share is paid back by looking so many times more rarely, for a while.
    const REPAYING: f64 = 2.0;
    /// Even at a high cost, look this often, if nothing else is asked for.
    const LONGEST_GAP_S: f64 = 5.0;

    /// A pace of one look per `interval_s` at a cost of at most `share` of a core.
    pub(crate) fn new(interval_s: f64, share: f64) -> Pace {
        Pace {
            interval_s,
            share,
            gap_s: Pace::FIRST_GAP_S.min(interval_s),
            spent_s: 0.0,
            longest_gap_s: Pace::LONGEST_GAP_S,
            next_s: 0.0,
        }
    }

    /// The same, but the cost may make gaps as long as this.
    pub(crate) fn with_longest_gap(self, longest_gap_s: f64) -> Pace {
        Pace { longest_gap_s, ..self }
    }

    /// Sets the time of the next look after one that cost so much CPU time.
    pub(crate) fn looked(&mut self, now_s: f64, cost_s: f64) {
        self.spent_s += cost_s;
        if self.gap_s < self.interval_s {
            let affordable_s = cost_s / (self.share * Pace::FIRST_SHARES);
            self.gap_s = (self.gap_s * Pace::GROWTH).max(affordable_s).min(self.interval_s);
            self.next_s = now_s + self.gap_s;
            return;
        }
        let in_debt = self.spent_s > self.share * now_s;
        let affordable_s = cost_s / self.share * if in_debt { Pace::REPAYING } else { 1.0 };
        let affordable_s = affordable_s.min(self.longest_gap_s);
        self.next_s = now_s + self.interval_s.max(affordable_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_starts_fast_and_respects_its_share() {
        let mut pace = Pace::new(0.05, 0.005);
        let mut now = 0.0;
        let mut looks = 0;
        while now < 0.1 {
            pace.looked(now, 0.0001);
            now = pace.next_s;
            looks += 1;
        }
        assert!(looks >= 6, "{looks}");
        pace.looked(1.0, 0.0001);
        assert!((pace.next_s - 1.05).abs() < 1e-9);
        pace.looked(2.0, 0.001);
        assert!((pace.next_s - 2.2).abs() < 1e-9);
        pace.looked(3.0, 1.0);
        assert!((pace.next_s - 8.0).abs() < 1e-9);
        let mut pace = pace.with_longest_gap(20.0);
        pace.looked(10.0, 1.0);
        assert!((pace.next_s - 30.0).abs() < 1e-9);
    }

    #[test]
    fn what_the_start_costs_is_paid_back() {
        let (cost_s, share) = (0.001, 0.005);
        let mut pace = Pace::new(0.05, share);
        let (mut now_s, mut spent_s) = (0.0, 0.0);
        while now_s < 10.0 {
            pace.looked(now_s, cost_s);
            spent_s += cost_s;
            now_s = pace.next_s;
        }
        assert!(spent_s <= share * now_s, "{spent_s} s in {now_s} s");
        assert!(spent_s >= 0.8 * share * now_s, "{spent_s} s in {now_s} s");
    }
}
