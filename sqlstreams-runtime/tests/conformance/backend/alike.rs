//! Any sequence of calls has the same answers on both backends, and leaves the same rows.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sqlstreams_runtime::backend::{
    ClaimParams, DeadLetterFilter, DiscardScope, ExceptionNext, ExceptionParams, ExceptionSettleParams,
    ExceptionTakeParams, LeaseRow, LetterParams, ProgressParams, ReturnParams, SettleParams,
};
use sqlstreams_runtime::identity::{GroupId, LeaseToken, PresenceId, StreamId};
use sqlstreams_runtime::schema::DeliveryLog;
use sqlstreams_runtime::{Position, Timestamp};

use crate::harness::{
    self, Installation, PATIENCE, claim_params, letter_params, pass_the_head, retry, settle_params, trouble,
};

const STEPS: usize = 120;
const VERSIONS: u32 = 3;
const MINUTE: Duration = Duration::from_secs(60);

/// What identifies a lease on both sides: its ids and its version.
type Key = (i64, i64, Option<i32>);

/// A call, without what differs between the backends.
#[derive(Clone, Debug)]
enum Step {
    Produce(u32, usize),
    Claim(i64),
    End(Key),
    Settle(Key, Vec<(i64, ExceptionNext)>, Vec<(i32, i64, i64)>),
    SettleLate(Vec<(i64, ExceptionNext)>),
    Report(Key, Vec<(i64, i64)>),
    Return(Key, Vec<(i64, i64)>),
    LoseOwner,
    TakeParked(Vec<i32>, i64),
    TakeTrouble(Vec<i32>, i64, i64),
    SettleTrouble(usize, Vec<(i64, ExceptionNext)>),
    ReturnTrouble(usize),
    Redrive(DeadLetterFilter, i64),
    Discard(DeadLetterFilter, i64, DiscardScope),
}

/// What a step answered and what is stored after it.
#[derive(Debug, PartialEq)]
struct Seen {
    answer: String,
    leases: Vec<String>,
    troubles: Vec<String>,
    parked: Vec<String>,
    dead: Vec<String>,
    attempts: Vec<String>,
    position: Position,
    /// How many ids were claimed.
    taken: Option<i64>,
}

/// One installation, with the names that its side has for things.
struct Side {
    installation: Installation,
    stream: StreamId,
    group: GroupId,
    presence: PresenceId,
    leases: BTreeMap<Key, LeaseToken>,
    lost: Vec<LeaseToken>,
    taken: Vec<LeaseToken>,
}

fn key(lease: &LeaseRow) -> Key {
    (lease.low, lease.high, lease.only_version)
}

fn exceptions(outcomes: &[(i64, ExceptionNext)]) -> Vec<ExceptionParams> {
    outcomes.iter().map(|(id, next)| trouble(*id, next.clone())).collect()
}

impl Side {
    async fn new(installation: Installation) -> Self {
        let stream = installation.stream("events").await;
        let group = installation.group(stream, "readers").await;
        let presence = installation.presence().await;
        let (leases, lost, taken) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { installation, stream, group, presence, leases, lost, taken }
    }

    async fn run(&mut self, step: &Step, now: Timestamp) -> Seen {
        let before = self.installation.backend.cursor_position(self.stream, self.group).await.expect("a position");
        let answer = self.answer(step, now).await;
        let (backend, stream, group) = (&self.installation.backend, self.stream, self.group);
        let mut leases = Vec::new();
        for token in self.leases.values() {
            let lease = backend.lease_find(stream, *token).await.expect("a look");
            leases.push(lease.map_or("gone".to_owned(), |lease| {
                format!("{:?} reclaims {} done {:?}", key(&lease), lease.reclaims, lease.done)
            }));
        }
        let dead = backend.letter_list(&letter_params(stream, group)).await.expect("dead letters");
        let position = backend.cursor_position(stream, group).await.expect("a position");
        let taken = Some(position.claimed - before.claimed).filter(|taken| *taken > 0);
        Seen {
            answer,
            taken,
            position,
            leases,
            troubles: self.installation.troubles(stream, group).await,
            parked: self.installation.parked(stream, group).await,
            attempts: self.installation.attempts(stream, group).await,
            dead: dead.iter().map(|letter| format!("{letter:?}")).collect(),
        }
    }

    async fn answer(&mut self, step: &Step, now: Timestamp) -> String {
        let (backend, stream, group) = (self.installation.backend.clone(), self.stream, self.group);
        match step {
            Step::Produce(version, count) => {
                format!("{:?}", self.installation.produce_version(stream, *version, *count).await)
            }
            Step::Claim(width) => self.claim(*width).await,
            Step::End(key) => {
                let settled = self.leases.remove(key).into_iter().collect();
                let params = ClaimParams { settled, ..claim_params(stream, group, self.presence, 0) };
                format!("{}", backend.claim_take(&params).await.expect("a claim").missing)
            }
            Step::Settle(key, outcomes, parked) => {
                let token = self.leases.remove(key).expect("the lease is known");
                self.settle(token, outcomes, parked.clone(), now).await
            }
            Step::SettleLate(outcomes) => {
                let token = self.lost.last().copied().unwrap_or_else(LeaseToken::mint);
                self.settle(token, outcomes, vec![(2, 0, 1000)], now).await
            }
            Step::Report(key, done) => {
                let tokens: Vec<_> = self.leases.values().chain(&self.lost).copied().collect();
                let progress = [ProgressParams { token: self.leases[key], done: done.clone() }];
                let owned = backend.lease_report(stream, group, self.presence, &tokens, &progress).await;
                format!("{} of {}", owned.expect("a report").len(), tokens.len())
            }
            Step::Return(key, done) => {
                let lease = ReturnParams { token: self.leases[key], done: done.clone(), exceptions: Vec::new() };
                backend.lease_return(stream, &[lease]).await.expect("a return");
                self.reclaim().await
            }
            Step::LoseOwner => {
                self.installation.expire(self.presence).await;
                self.presence = self.installation.presence().await;
                self.reclaim().await
            }
            Step::TakeParked(versions, width) => {
                let params = claim_params(stream, group, self.presence, *width);
                let taken = backend.parked_take(&params, versions).await.expect("a look");
                if let Some(lease) = &taken {
                    self.leases.insert(key(lease), lease.token);
                }
                format!("{:?}", taken.as_ref().map(key))
            }
            Step::TakeTrouble(versions, limit, suspects) => {
                let token = LeaseToken::mint();
                self.taken.push(token);
                let (presence, versions, limit, suspects) = (self.presence, versions.clone(), *limit, *suspects);
                let params = ExceptionTakeParams {
                    stream,
                    group,
                    presence,
                    token,
                    limit,
                    versions,
                    suspects,
                    max_kills: 3,
                    due_from: None,
                    now: Some(now),
                };
                let taken = backend.exception_take(&params).await.expect("an answer");
                let counts = taken.iter().map(|row| {
                    let found = row.message.as_ref().map(|message| (message.id, message.schema_version));
                    (row.id, row.attempts, row.failures, row.delays, row.kills, found)
                });
                format!("{:?}", counts.collect::<Vec<_>>())
            }
            Step::SettleTrouble(at, outcomes) => {
                let (token, exceptions) = (self.taken[*at], exceptions(outcomes));
                let log = DeliveryLog::All;
                let params = ExceptionSettleParams { stream, group, token, exceptions, log, now: Some(now) };
                format!("{:?}", backend.exception_settle(&params).await.is_ok())
            }
            Step::Redrive(filter, limit) => {
                let params = LetterParams { filter: filter.clone(), limit: *limit, ..letter_params(stream, group) };
                let counts = backend.letter_count(&params, true).await.expect("an answer");
                let batch = backend.letter_redrive(&params, Duration::ZERO, Some(now)).await;
                format!("{counts:?} {:?}", batch.expect("an answer"))
            }
            Step::Discard(filter, limit, scope) => {
                let params = LetterParams { filter: filter.clone(), limit: *limit, ..letter_params(stream, group) };
                format!("{:?}", backend.letter_discard(&params, *scope).await.expect("an answer"))
            }
            Step::ReturnTrouble(at) => {
                format!("{:?}", backend.exception_return(stream, group, self.taken[*at]).await.is_ok())
            }
        }
    }

    /// Claims as soon as nothing is pending.
    async fn claim(&mut self, width: i64) -> String {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let params = claim_params(self.stream, self.group, self.presence, width);
            let row = self.installation.backend.claim_take(&params).await.expect("a claim");
            if row.high > row.low {
                self.leases.insert((row.low, row.high, None), params.token);
                return format!("({}, {}]", row.low, row.high);
            }
            if !row.pending && !row.contended {
                return "nothing".to_owned();
            }
            assert!(std::time::Instant::now() < deadline, "a claim stays pending: {row:?}");
            pass_the_head(&*self.installation.backend, self.stream, self.group, &row).await;
        }
    }

    async fn settle(
        &self,
        token: LeaseToken,
        outcomes: &[(i64, ExceptionNext)],
        parked: Vec<(i32, i64, i64)>,
        now: Timestamp,
    ) -> String {
        let exceptions = exceptions(outcomes);
        let log = DeliveryLog::All;
        let params = SettleParams { exceptions, parked, log, now: Some(now), ..settle_params(self.stream, token) };
        self.installation.backend.lease_settle(&params).await.expect("an answer").to_string()
    }

    /// Takes over everything without an owner, under new tokens.
    async fn reclaim(&mut self) -> String {
        let mut taken = Vec::new();
        while taken.len() < 1000 {
            let token = LeaseToken::mint();
            let backend = &self.installation.backend;
            let lease = backend.lease_reclaim(self.stream, self.group, self.presence, token).await.expect("a look");
            let Some(lease) = lease else { break };
            let lost = self.leases.insert(key(&lease), token).expect("the lease was known");
            self.lost.push(lost);
            taken.push((key(&lease), lease.reclaims, lease.done));
        }
        taken.sort();
        format!("{taken:?}")
    }
}

/// Chooses steps that mean something where both sides stand.
struct Chooser {
    random: StdRng,
    step: usize,
}

impl Chooser {
    fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.random.random_range(0..choices.len())].clone()
    }

    fn next(&mut self) -> ExceptionNext {
        // No two are due at the same time: which of them is taken first would be chance.
        let after = Duration::from_micros(self.random.random_range(0..10) * 60_000_000 + self.step as u64);
        match self.random.random_range(0..5) {
            0 => ExceptionNext::Later { after },
            1 => ExceptionNext::Dead { error: format!("step {}", self.step) },
            2 => ExceptionNext::Return,
            3 => ExceptionNext::Done,
            _ => retry(after),
        }
    }

    fn outcomes(&mut self, low: i64, high: i64) -> Vec<(i64, ExceptionNext)> {
        let mut outcomes = Vec::new();
        for id in low + 1..=high {
            if self.random.random_bool(0.4) {
                outcomes.push((id, self.next()));
            }
        }
        outcomes
    }

    fn filter(&mut self) -> DeadLetterFilter {
        let all = DeadLetterFilter::all();
        match self.random.random_range(0..6) {
            0 => all.error_starts_with("step 1"),
            1 => all.error_contains("3"),
            2 => all.version(2),
            3 => all.error_starts_with("the process").error_contains("lost"),
            _ => all,
        }
    }

    fn done(&mut self, low: i64, high: i64) -> Vec<(i64, i64)> {
        let mut done = Vec::new();
        for id in low..high {
            if self.random.random_bool(0.5) {
                done.push((id, id + 1));
            }
        }
        done
    }

    fn step(&mut self, side: &Side) -> Step {
        self.step += 1;
        let lease = if side.leases.is_empty() {
            None
        } else {
            Some(self.one_of(&side.leases.keys().copied().collect::<Vec<_>>()))
        };
        let take = side.taken.len().checked_sub(1).map(|last| self.random.random_range(last.saturating_sub(3)..=last));
        let versions = self.one_of(&[vec![1], vec![2], vec![1, 2, 3], vec![]]);
        match (self.random.random_range(0..16), lease, take) {
            (0 | 1, _, _) => Step::Produce(self.random.random_range(1..=VERSIONS), self.random.random_range(1..5)),
            (2, Some(lease), _) => Step::End(lease),
            (3 | 4, Some((low, high, version)), _) => {
                let mut parked = Vec::new();
                for other in (2..=3).filter(|_| version.is_none()) {
                    if self.random.random_bool(0.6) {
                        parked.push((other, low, high));
                    }
                }
                let outcomes = self.outcomes(low, high);
                Step::Settle((low, high, version), outcomes, parked)
            }
            (5, Some((low, high, version)), _) => Step::Report((low, high, version), self.done(low, high)),
            (6, Some((low, high, version)), _) => Step::Return((low, high, version), self.done(low, high)),
            (7, _, _) => Step::LoseOwner,
            // One version: of two ranges that begin alike, either may be taken first.
            (8, _, _) => Step::TakeParked(vec![self.random.random_range(1..=3)], self.random.random_range(0..6)),
            (9, _, _) => {
                let (limit, suspects) = self.one_of(&[(0, 1000), (1000, 0), (1000, 1000)]);
                Step::TakeTrouble(versions, limit, suspects)
            }
            (10, _, Some(take)) => Step::SettleTrouble(take, self.outcomes(0, 40)),
            (11, _, Some(take)) => Step::ReturnTrouble(take),
            (14, _, _) => Step::Redrive(self.filter(), self.one_of(&[1, 2, 1000])),
            (15, _, _) => {
                let scope = self.one_of(&[DiscardScope::Dead, DiscardScope::Waiting, DiscardScope::Running]);
                Step::Discard(self.filter(), self.one_of(&[1, 2]), scope)
            }
            (12, _, _) => Step::SettleLate(self.outcomes(0, 10)),
            _ => Step::Claim(self.random.random_range(1..7)),
        }
    }
}

async fn run(seed: u64) {
    let mut left = Side::new(harness::postgres().await).await;
    let mut right = Side::new(harness::sqlite().await).await;
    let mut chooser = Chooser { random: StdRng::seed_from_u64(seed), step: 0 };
    // Ahead of the database's clock, by which some things become ready.
    let mut now = Timestamp(left.installation.now().await).plus(60 * MINUTE);
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        let step = chooser.step(&left);
        steps.push(step.clone());
        now = now.plus(MINUTE);
        let left = left.run(&step, now).await;
        // Postgres may still have to prove the newest ids, and give fewer.
        let step = if let (Step::Claim(_), Some(taken)) = (&step, left.taken) { Step::Claim(taken) } else { step };
        let right = right.run(&step, now).await;
        let tail = &steps[steps.len().saturating_sub(8)..];
        assert_eq!(left, right, "seed {seed}, step {}, after {tail:#?}", steps.len());
    }
}

#[tokio::test]
async fn both_backends_answer_alike_to_any_sequence_of_calls() {
    for seed in 0..6 {
        run(seed).await;
    }
}
