//! The bootstrap over real sockets on loopback: joins, refusals, losses, aborts, strangers.

use ringsmith_runtime::bootstrap::Bootstrap;
use ringsmith_runtime::bootstrap::root::Root;
use ringsmith_runtime::config::Config;
use ringsmith_runtime::error::{Error, Result};
use ringsmith_runtime::unique_id::UniqueId;
use std::thread::ScopedJoinHandle;

/// Settings for one host, with the given variables.
fn config(vars: &[(&str, &str)]) -> Config {
    let base = [("RINGSMITH_SOCKET_IFNAME", "=lo"), ("RINGSMITH_INIT_TIMEOUT_S", "30")];
    // Later ones win.
    let mut all: Vec<(String, String)> = Vec::new();
    for (name, value) in base.iter().chain(vars) {
        all.retain(|(n, _)| n != name);
        all.push(((*name).to_owned(), (*value).to_owned()));
    }
    Config::from_vars(all).expect("settings of the test").0
}

fn create(config: &Config) -> (UniqueId, Root) {
    UniqueId::create(config).expect("a root on loopback")
}

/// Runs one thread per rank; gives what each made of its place, in the order of ranks.
fn all_ranks<T: Send>(
    id: &UniqueId,
    world: u32,
    config: &Config,
    body: impl Fn(Result<Bootstrap>) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let start = |rank| scope.spawn(move || body(Bootstrap::connect(id, rank, world, config)));
        let threads: Vec<ScopedJoinHandle<'_, T>> = (0..world).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic in a rank")).collect()
    })
}

#[test]
fn ranks_join_and_gather() {
    let config = config(&[]);
    for world in [1, 2, 8] {
        let (id, _root) = create(&config);
        all_ranks(&id, world, &config, |place| {
            let place = place.expect("every rank is here");
            assert_eq!(place.local_ranks(), (0..world).collect::<Vec<_>>());
            for round in 0..3u8 {
                let part = vec![place.rank() as u8; round as usize * 70_000 + place.rank() as usize];
                let all = place.all_gather("parts", &part).expect("every rank gives its part");
                for (rank, part) in all.iter().enumerate() {
                    assert_eq!(part.len(), round as usize * 70_000 + rank);
                    assert!(part.iter().all(|&b| b as usize == rank));
                }
            }
            place.barrier("end").expect("every rank comes");
        });
    }
}

#[test]
fn missing_ranks_are_named_to_all() {
    let config = config(&[("RINGSMITH_INIT_TIMEOUT_S", "0.5")]);
    let (id, _root) = create(&config);
    std::thread::scope(|scope| {
        for rank in [0, 2] {
            let (id, config) = (&id, &config);
            scope.spawn(move || {
                let error = Bootstrap::connect(id, rank, 6, config).expect_err("four ranks are missing");
                let text = error.to_string();
                assert!(text.contains("ranks 1, 3-5 did not come within 0.5 s"), "{text}");
                assert_eq!(error.exit_status().code(), 3);
                assert!(matches!(error, Error::Refused { .. }));
            });
        }
    });
}
