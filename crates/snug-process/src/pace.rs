//! The pace at which to look at processes again. Pure: told what looking cost.

/// When to look next: at first every few milliseconds, so that short programs are seen, then at a regular
/// interval, and never so often that looking costs more than its share of a core.
#[derive(Debug, Clone)]
pub struct Pace {
    interval_s: f64,
    share: f64,
    gap_s: f64,
    /// CPU time of all looks so far, and what else was charged.
    spent_s: f64,
    /// What was charged since the last look.
    beside_s: f64,
    /// What the last looks cost, with what was charged.
    recent_s: [f64; Pace::RECENT],
    /// None: as long as the run's length so far allows.
    longest_gap_s: Option<f64>,
    pub next_s: f64,
}

impl Pace {
    /// The first gap: a program that ends within it is seen once.
    const FIRST_GAP_S: f64 = 0.001;
    /// And each further one is longer by this factor, up to the interval.
    const GROWTH: f64 = 1.5;
    /// Until then it may cost so many times the share.
    const FIRST_SHARES: f64 = 20.0;
    /// What the first looks cost above the share is paid back by looking so many times more rarely, for a while.
    const REPAYING: f64 = 2.0;
    /// Even at a high cost a gap is no longer than this, or than this part of the run so far, whichever is longer, if
    /// nothing else is asked for: a run may end at any time, and is to be seen until then. In the first seconds it is
    /// no longer than that part, unless looks usually cost more, or those before took what is due for `ADVANCE_S`.
    const LONGEST_GAP_S: f64 = 5.0;
    const LONGEST_PART: f64 = 0.5;
    const ADVANCE_S: f64 = 10.0;
    /// The cheapest of this many looks in a row says what one costs: the others may have read something for once, as the
    /// symbols of a library. Those are paid back later, not by a gap in which a short run would not be seen.
    const RECENT: usize = 3;

    /// A pace of one look per `interval_s` at a cost of at most `share` of a core.
    pub fn new(interval_s: f64, share: f64) -> Pace {
        Pace {
            interval_s,
            share,
            gap_s: Pace::FIRST_GAP_S.min(interval_s),
            spent_s: 0.0,
            beside_s: 0.0,
            recent_s: [0.0; Pace::RECENT],
            longest_gap_s: None,
            next_s: 0.0,
        }
    }

    /// The same, but the cost may make gaps as long as this.
    pub fn with_longest_gap(self, longest_gap_s: f64) -> Pace {
        Pace { longest_gap_s: Some(longest_gap_s), ..self }
    }

    /// Takes note of CPU time that was spent around the looks: it is paid back as theirs is.
    pub fn charge(&mut self, cost_s: f64) {
        self.beside_s += cost_s;
    }

    /// Sets the time of the next look after one that cost so much CPU time.
    pub fn looked(&mut self, now_s: f64, cost_s: f64) {
        let with_beside_s = cost_s + std::mem::take(&mut self.beside_s);
        self.spent_s += with_beside_s;
        self.recent_s.rotate_left(1);
        self.recent_s[Pace::RECENT - 1] = with_beside_s;
        if self.gap_s < self.interval_s {
            let affordable_s = cost_s / (self.share * Pace::FIRST_SHARES);
            self.gap_s = (self.gap_s * Pace::GROWTH).max(affordable_s).min(self.interval_s);
            self.next_s = now_s + self.gap_s;
            return;
        }
        let in_debt = self.spent_s > self.share * now_s;
        let affordable_s = with_beside_s / self.share * if in_debt { Pace::REPAYING } else { 1.0 };
        self.next_s = now_s + affordable_s.min(self.longest_gap_at(now_s)).max(self.interval_s);
    }

    fn longest_gap_at(&self, now_s: f64) -> f64 {
        let part_s = now_s * Pace::LONGEST_PART;
        let usual_s = self.recent_s.iter().copied().fold(f64::INFINITY, f64::min) / self.share;
        let spent_before_s = self.spent_s - self.recent_s[Pace::RECENT - 1];
        let is_early = now_s < Pace::LONGEST_GAP_S && spent_before_s <= self.share * Pace::ADVANCE_S;
        match self.longest_gap_s {
            Some(longest_gap_s) => longest_gap_s,
            None if is_early => part_s.max(usual_s).min(Pace::LONGEST_GAP_S),
            None => part_s.max(Pace::LONGEST_GAP_S),
        }
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
        assert!((pace.next_s - 4.5).abs() < 1e-9);
        pace.looked(4.9, 1.0);
        assert!((pace.next_s - 9.9).abs() < 1e-9);
        let mut pace = pace.with_longest_gap(20.0);
        pace.looked(10.0, 1.0);
        assert!((pace.next_s - 30.0).abs() < 1e-9);
    }

    const SHARE: f64 = 0.005;

    /// CPU time that looks of this cost take in a run, beside what is charged at its start and with each look.
    fn spent(look_s: f64, start_s: f64, beside_s: f64, run_s: f64) -> f64 {
        let mut pace = Pace::new(0.05, SHARE);
        pace.charge(start_s);
        let (mut now_s, mut spent_s) = (0.0, start_s);
        while now_s < run_s {
            pace.charge(beside_s);
            pace.looked(now_s, look_s);
            spent_s += look_s + beside_s;
            now_s = pace.next_s;
        }
        spent_s
    }

    #[test]
    fn what_the_start_costs_is_paid_back() {
        let spent_s = spent(0.001, 0.0, 0.0, 10.0);
        assert!((0.8 * SHARE * 10.0..=SHARE * 10.0).contains(&spent_s), "{spent_s} s in 10 s");
        let spent_s = spent(0.001, 0.03, 0.0, 20.0);
        assert!((0.8 * SHARE * 20.0..=SHARE * 20.0).contains(&spent_s), "{spent_s} s in 20 s");
    }

    #[test]
    fn what_is_spent_beside_the_looks_is_paid_back() {
        let spent_s = spent(0.001, 0.01, 0.0008, 30.0);
        assert!((0.8 * SHARE * 30.0..=SHARE * 30.0).contains(&spent_s), "{spent_s} s in 30 s");
    }

    /// The first look at a library that reads all its symbols, on a slow machine.
    #[test]
    fn one_dear_look_leaves_no_hole_in_a_short_run() {
        for dear in 0..12 {
            let mut pace = Pace::new(0.05, SHARE);
            let (mut now_s, mut spent_s, mut looks, mut looks_of_3_s) = (0.0, 0.0, 0, 0);
            while now_s < 40.0 {
                let cost_s = if looks == dear { 0.1 } else { 0.0003 };
                pace.looked(now_s, cost_s);
                spent_s += cost_s;
                looks += 1;
                if now_s < 3.0 {
                    looks_of_3_s = looks - dear;
                    let gap_s = pace.next_s - now_s;
                    assert!(
                        gap_s <= (now_s / 2.0).max(0.121) + 1e-9,
                        "{gap_s} s at {now_s} s, look {dear} is dear"
                    );
                }
                now_s = pace.next_s;
            }
            assert!(looks_of_3_s >= 8, "{looks_of_3_s} looks after number {dear}, in 3 s");
            assert!(spent_s <= 1.01 * SHARE * 40.0, "{spent_s} s in 40 s");
        }
    }

    /// Each process of a tree, for example, is dear once, and they start one after the other.
    #[test]
    fn of_dear_looks_between_cheap_ones_few_are_made() {
        for (run_s, dear_looks) in [(5.0, 3.0), (10.0, 4.0)] {
            let mut pace = Pace::new(0.05, SHARE);
            let (mut now_s, mut spent_s, mut is_dear) = (0.0, 0.0, false);
            while now_s < run_s {
                let cost_s = if is_dear { 0.04 } else { 0.0003 };
                pace.looked(now_s, cost_s);
                (now_s, spent_s, is_dear) = (pace.next_s, spent_s + cost_s, !is_dear);
            }
            assert!(spent_s <= dear_looks * 0.04 + 0.01, "{spent_s} s in {run_s} s");
        }
    }

    #[test]
    fn looks_that_cost_more_than_the_longest_gap_can_pay_become_rare() {
        // 0.1 s each: one in 20 s is within the share, one in 5 s four times above it.
        let spent_s = spent(0.1, 0.0, 0.0, 1000.0);
        assert!(spent_s <= 1.1 * SHARE * 1000.0, "{spent_s} s in 1000 s");
        assert!(spent(0.1, 0.0, 0.0, 40.0) >= 0.4, "a run of 40 s is seen often enough");
    }
}
