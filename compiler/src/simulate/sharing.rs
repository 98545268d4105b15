//! How ops at work share resources, and which of them is over first.
//!
//! An op that works alone takes the time of its scarcest resource, and of every other one a part. Where
//! more is wanted than there is, everybody on that resource is slowed to the same fraction of the speed
//! they would have alone, and what that frees elsewhere goes to others: max-min fair, by filling.
//! Only what is joined to a change through resources that are short is looked at again.

/// What an op at work is like.
#[derive(Clone, Debug, Default)]
struct Flow {
    /// Which part of each resource it takes at full speed.
    wants: Vec<(usize, f64)>,
    /// How long it would take from `since_ns` on at full speed.
    left_ns: f64,
    since_ns: f64,
    /// 0 while it does not work.
    speed: f64,
    /// What slows it, or else what it takes all of.
    limit: Option<usize>,
    /// What it takes all of if it works alone.
    scarcest: Option<usize>,
}

/// Resources, and the op that each lane has at work.
pub(super) struct Sharing {
    flows: Vec<Flow>,
    /// Lanes at work on each resource.
    users: Vec<Vec<usize>>,
    ends: Earliest,
    /// What a search has reached; all of it is empty between searches.
    reached: Reached,
}

/// Lanes and resources that a search has come to.
struct Reached {
    lanes: Vec<usize>,
    is_lane: Vec<bool>,
    resources: Vec<usize>,
    is_resource: Vec<bool>,
    short: Vec<Short>,
    /// Where a resource stands among those that are short.
    place: Vec<Option<usize>>,
}

/// A resource of which more is wanted than there is.
#[derive(Clone, Copy)]
struct Short {
    resource: usize,
    /// What is left of it.
    left: f64,
    /// What those want whose speed is still open.
    wanted: f64,
}

/// Sums of parts are this exact.
const EXACT: f64 = 1e-9;

impl Sharing {
    pub(super) fn new(lanes: usize, resources: usize) -> Self {
        let reached = Reached {
            lanes: Vec::new(),
            is_lane: vec![false; lanes],
            resources: Vec::new(),
            is_resource: vec![false; resources],
            short: Vec::new(),
            place: vec![None; resources],
        };
        let (flows, users) = (vec![Flow::default(); lanes], vec![Vec::new(); resources]);
        Self { flows, users, ends: Earliest::new(lanes), reached }
    }

    /// The lane whose op will be over first, as things stand, and when; of several, the first lane.
    pub(super) fn next_end(&self) -> Option<(f64, usize)> {
        self.ends.first()
    }

    /// What limits the op that a lane has at work.
    pub(super) fn limit(&self, lane: usize) -> Option<usize> {
        self.flows[lane].limit
    }

    /// Which part of its full speed a lane has.
    #[cfg(test)]
    pub(super) fn speed(&self, lane: usize) -> f64 {
        self.flows[lane].speed
    }

    /// A lane begins to work: `wants` are parts of resources, `alone_ns` what it takes at full speed.
    pub(super) fn begin(
        &mut self,
        lane: usize,
        wants: impl Iterator<Item = (usize, f64)>,
        alone_ns: f64,
        now_ns: f64,
    ) {
        let flow = &mut self.flows[lane];
        flow.wants.clear();
        flow.wants.extend(wants);
        (flow.left_ns, flow.since_ns, flow.speed) = (alone_ns, now_ns, 0.0);
        let scarcest = flow.wants.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
        flow.scarcest = scarcest.map(|(resource, _)| resource);
        for &(resource, _) in &self.flows[lane].wants {
            self.users[resource].push(lane);
        }
        self.reach(lane);
        self.reached.is_lane[lane] = true;
        self.reached.lanes.push(lane);
        self.share(now_ns);
    }

    /// A lane's op is over.
    pub(super) fn end(&mut self, lane: usize, now_ns: f64) {
        for &(resource, _) in &self.flows[lane].wants {
            self.users[resource].retain(|user| *user != lane);
        }
        self.flows[lane].speed = 0.0;
        self.ends.set(lane, f64::INFINITY);
        self.reach(lane);
        self.share(now_ns);
    }

    /// Finds whom a change of one lane may concern: who is joined to it through resources that are short, or
    /// were until now. The lane itself may not be among them.
    fn reach(&mut self, changed: usize) {
        let (flows, reached) = (&self.flows, &mut self.reached);
        let (mut next, mut wants) = (0, &flows[changed].wants);
        loop {
            for &(resource, _) in wants {
                if std::mem::replace(&mut reached.is_resource[resource], true) {
                    continue;
                }
                reached.resources.push(resource);
                let users = &self.users[resource];
                let part = |lane: &usize| flows[*lane].part(resource);
                let wanted: f64 = users.iter().map(part).sum();
                if wanted > 1.0 + EXACT {
                    reached.place[resource] = Some(reached.short.len());
                    reached.short.push(Short { resource, left: 1.0, wanted });
                } else if users.iter().all(|lane| *lane == changed || flows[*lane].speed >= 1.0) {
                    continue;
                }
                for &user in users.iter().filter(|user| **user != changed) {
                    if !std::mem::replace(&mut reached.is_lane[user], true) {
                        reached.lanes.push(user);
                    }
                }
            }
            let Some(&lane) = reached.lanes.get(next) else { return };
            (next, wants) = (next + 1, &flows[lane].wants);
        }
    }

    /// Gives everybody who was reached a new speed: fills until something is short, fixes those who want of
    /// it, and goes on with the others.
    fn share(&mut self, now_ns: f64) {
        loop {
            let short = self.reached.short.iter().filter(|short| short.wanted > EXACT);
            let levels = short.map(|short| (short.left / short.wanted, short.resource));
            let Some((level, resource)) = levels.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
            if level >= 1.0 {
                break;
            }
            for at in 0..self.users[resource].len() {
                let lane = self.users[resource][at];
                if std::mem::take(&mut self.reached.is_lane[lane]) {
                    for &(resource, part) in &self.flows[lane].wants {
                        if let Some(place) = self.reached.place[resource] {
                            let short = &mut self.reached.short[place];
                            short.left = (short.left - part * level).max(0.0);
                            short.wanted -= part;
                        }
                    }
                    self.turn(lane, level.max(EXACT), Some(resource), now_ns);
                }
            }
            // Sums that are not quite exact must not bring it up again.
            let place = self.reached.place[resource].expect("it is short");
            self.reached.short[place].wanted = 0.0;
        }
        for at in 0..self.reached.lanes.len() {
            let lane = self.reached.lanes[at];
            if std::mem::take(&mut self.reached.is_lane[lane]) {
                self.turn(lane, 1.0, None, now_ns);
            }
        }
        self.reached.lanes.clear();
        self.reached.short.clear();
        for resource in self.reached.resources.drain(..) {
            self.reached.is_resource[resource] = false;
            self.reached.place[resource] = None;
        }
    }

    /// Changes a lane's speed.
    fn turn(&mut self, lane: usize, speed: f64, slowed_by: Option<usize>, now_ns: f64) {
        let flow = &mut self.flows[lane];
        flow.limit = slowed_by.or(flow.scarcest);
        if flow.speed != speed {
            flow.left_ns = (flow.left_ns - (now_ns - flow.since_ns) * flow.speed).max(0.0);
            (flow.since_ns, flow.speed) = (now_ns, speed);
            self.ends.set(lane, now_ns + flow.left_ns / speed);
        }
    }
}

impl Flow {
    fn part(&self, resource: usize) -> f64 {
        self.wants.iter().find(|want| want.0 == resource).map_or(0.0, |want| want.1)
    }
}

/// A moment for each lane, and the first of them: a tree in which the earlier of two goes on.
struct Earliest {
    at_ns: Vec<f64>,
    /// The winner of each pair; the root is 1, and leaves are the lanes.
    winners: Vec<usize>,
}

impl Earliest {
    fn new(lanes: usize) -> Self {
        let leaves = lanes.next_power_of_two();
        let mut winners: Vec<usize> = vec![0; 2 * leaves];
        winners[leaves..].iter_mut().zip(0..).for_each(|(winner, lane)| *winner = lane);
        for node in (1..leaves).rev() {
            winners[node] = winners[2 * node];
        }
        Self { at_ns: vec![f64::INFINITY; leaves], winners }
    }

    fn set(&mut self, lane: usize, at_ns: f64) {
        self.at_ns[lane] = at_ns;
        let mut node = (self.at_ns.len() + lane) / 2;
        while node > 0 {
            let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
            self.winners[node] = if self.at_ns[right] < self.at_ns[left] { right } else { left };
            node /= 2;
        }
    }

    fn first(&self) -> Option<(f64, usize)> {
        let lane = self.winners[1];
        Some((self.at_ns[lane], lane)).filter(|(at_ns, _)| at_ns.is_finite())
    }
}
