//! Swarm testing: each seed draws which faults there are at all, and how often (Groce et al., ISSTA
//! 2012: leaving features out finds more than having all of them on).

use super::Scenario;
use crate::dice::Dice;

impl Scenario {
    /// A scenario whose size, load and mix of faults follow from `seed`: 3 to 9 nodes, about half of
    /// the kinds of faults.
    pub fn drawn(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "scenario");
        let mut drawn = Self {
            nodes: dice.between(3, 9) as u32,
            seconds: dice.between(6, 14) as u32,
            ..Self::default()
        };
        drawn.draw_sizes(&mut dice);
        drawn.draw_network_faults(&mut dice);
        drawn.draw_node_faults(&mut dice);
        drawn
    }

    fn draw_sizes(&mut self, dice: &mut Dice) {
        let cluster = &mut self.cluster;
        cluster.block_tokens = dice.pick(&[16, 32, 64]).unwrap_or(64);
        cluster.engines = dice.pick(&[1, 1, 1, 2]).unwrap_or(1);
        // In tokens, so that small blocks do not mean small pools: from hardly one session to plenty.
        let pool = dice.pick(&[768, 1536, 2560, 6144, 12_288]).unwrap_or(6144);
        cluster.engine_slots = pool / cluster.block_tokens;
        cluster.context = pool * 3 / 4;
        cluster.dram_slots = dice.pick(&[1, 2, 4]).unwrap_or(2) * cluster.engine_slots / 2;
        cluster.nvme_slots = dice.pick(&[0, 1, 4]).unwrap_or(1) * cluster.engine_slots;
        cluster.max_batch = dice.pick(&[2, 8, 16]).unwrap_or(8);
        cluster.buggify = dice.share(0.5);
        cluster.speedup = dice.pick(&[1.0, 4.0]).unwrap_or(1.0);
        let workload = &mut self.workload;
        workload.sessions = dice.between(2, 10) as u32;
        workload.families = dice.between(1, 3) as u32;
        workload.system_tokens = dice.pick(&[64, 300, 700]).unwrap_or(300);
        workload.system_tokens = workload.system_tokens.min(cluster.context / 3);
        workload.turn_tokens = dice.pick(&[20, 60, 120]).unwrap_or(60);
        workload.output_tokens = dice.pick(&[4, 16, 120]).unwrap_or(16);
        workload.slow_readers = dice.pick(&[0.0, 0.1]).unwrap_or(0.0);
        workload.vanishing = dice.pick(&[0.0, 0.1]).unwrap_or(0.0);
    }

    fn draw_network_faults(&mut self, dice: &mut Dice) {
        let mut maybe = |most: f64| if dice.share(0.4) { most * dice.unit() } else { 0.0 };
        let faults = &mut self.faults;
        faults.topic_loss = maybe(0.3);
        faults.topic_twice = maybe(0.2);
        faults.topic_late = maybe(0.1);
        faults.frame_loss = maybe(0.05);
        faults.busy_actors = maybe(0.1);
        faults.breaks_per_minute = maybe(60.0);
        faults.cuts_per_minute = maybe(10.0);
        faults.one_way_cuts_per_minute = maybe(20.0);
        faults.pair_cuts_per_minute = maybe(20.0);
        faults.transit_flips = maybe(0.1);
        faults.forgeries_per_minute = maybe(60.0);
        faults.cut_max_s = 6;
        faults.newer_nodes = u32::from(dice.share(0.2));
    }

    fn draw_node_faults(&mut self, dice: &mut Dice) {
        let mut maybe = |most: f64| if dice.share(0.4) { most * dice.unit() } else { 0.0 };
        let faults = &mut self.faults;
        faults.freezes_per_minute = maybe(30.0);
        faults.clock_jumps_per_minute = maybe(10.0);
        faults.crashes_per_minute = maybe(30.0);
        faults.disk_lost = maybe(1.0);
        faults.engine_deaths_per_minute = maybe(20.0);
        faults.twins_per_minute = maybe(4.0);
        faults.rollbacks_per_minute = maybe(6.0);
        faults.disk_slow = maybe(0.1);
        faults.disk_errors = maybe(0.05);
        faults.disk_misdirected = maybe(0.02);
        faults.disk_sync_errors = maybe(0.02);
        faults.disk_lost_writes = maybe(0.02);
        faults.disk_flips_per_minute = maybe(60.0);
        faults.late_writes_ms = maybe(300.0) as u64;
        faults.freeze_max_ms = 10_000;
        faults.liars = u32::from(dice.share(0.2));
        if self.cluster.nvme_slots > 0 && dice.share(0.15) {
            faults.disk_full_blocks = self.cluster.nvme_slots / 2;
        }
        faults.dram_flips_per_minute = if dice.share(0.4) { 60.0 * dice.unit() } else { 0.0 };
    }
}
