//! Settings from variables and files, and docs/settings.md against the table in the code.

use ringsmith_runtime::config::grammar::InterfaceFilter;
use ringsmith_runtime::config::table::SETTINGS;
use ringsmith_runtime::config::{Config, ConfigError, Net, Warning};
use ringsmith_runtime::log::Level;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn read(vars: &[(&str, &str)]) -> Result<(Config, Vec<Warning>), ConfigError> {
    Config::from_vars(vars.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())))
}

fn config(vars: &[(&str, &str)]) -> Config {
    read(vars).expect("settings that can be used").0
}

fn mistakes(vars: &[(&str, &str)]) -> String {
    read(vars).expect_err("settings that cannot be used").to_string()
}

/// A file that is removed again.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringsmith-test-{name}-{}", std::process::id()));
        std::fs::write(&path, text).expect("a file for the test");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn nothing_set_gives_the_defaults() {
    let (config, warnings) = read(&[("TERM", "dumb"), ("PATH", "/bin")]).expect("no settings");
    assert_eq!(config, Config::default());
    assert!(warnings.is_empty());
    assert_eq!(config.init_timeout, Duration::from_secs(120));
    assert_eq!((config.timeout, config.stall), (None, Duration::from_secs(30)));
}

#[test]
fn variables_of_others_say_where_things_lie() {
    let home = config(&[("HOME", "/home/me"), ("CUDA_PATH", "/opt/cuda"), ("CUDA_HOME", "/opt/cuda-13")]);
    assert_eq!(home.user_cache.as_deref(), Some(Path::new("/home/me/.cache")));
    assert_eq!(home.cuda_toolkits, ["/opt/cuda-13", "/opt/cuda"].map(PathBuf::from));
    assert_eq!((&home.cache_dir, &home.nvrtc), (&None, &None));
    let xdg = config(&[("HOME", "/home/me"), ("XDG_CACHE_HOME", "/scratch/me"), ("CUDA_HOME", "")]);
    assert_eq!((xdg.user_cache.as_deref(), xdg.cuda_toolkits.len()), (Some(Path::new("/scratch/me")), 0));
    let relative = config(&[("HOME", "me"), ("XDG_CACHE_HOME", "cache"), ("CUDA_HOME", "cuda")]);
    assert_eq!((relative.user_cache, relative.cuda_toolkits), (None, Vec::new()));
    let set = config(&[("RINGSMITH_CACHE_DIR", "kernels"), ("RINGSMITH_NVRTC", "/opt/nvrtc")]);
    assert_eq!((set.cache_dir, set.nvrtc), (Some("kernels".into()), Some("/opt/nvrtc".into())));
}

#[test]
fn both_names_are_read_and_ours_wins() {
    assert_eq!(config(&[("NCCL_DEBUG", "INFO")]).debug, Level::Info);
    let (both, warnings) = read(&[("NCCL_NET", "IB"), ("RINGSMITH_NET", "Socket")]).expect("networks");
    assert_eq!(both.net, Some(Net::Socket));
    let said = warnings[0].to_string();
    assert!(said.contains("NCCL_NET is ignored: RINGSMITH_NET"), "{said}");
    let (same, warnings) = read(&[("NCCL_NET", "IB"), ("RINGSMITH_NET", "IB")]).expect("networks");
    assert_eq!((same.net, warnings.len()), (Some(Net::Ib), 0));
    // An empty variable is one that is not set.
    assert_eq!(config(&[("RINGSMITH_NET", ""), ("NCCL_NET", "IB")]).net, Some(Net::Ib));
    assert!(!config(&[("NCCL_SHM_DISABLE", "1")]).shm);
}

#[test]
fn unknown_names_are_warned_about() {
    let said = |name: &str| {
        let (_, warnings) = read(&[(name, "1")]).expect("a name that nobody knows is no error");
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert!(said("RINGSMITH_INIT_TIMEOUT").contains("did you mean RINGSMITH_INIT_TIMEOUT_S?"));
    assert!(said("NCCL_TOPODUMP_FILE").contains("did you mean NCCL_TOPO_DUMP_FILE?"));
    assert!(said("NCCL_PROXY_DEBUG").contains("is ignored; did you mean NCCL_DEBUG?"));
    assert!(said("NCCL_IB_HCA").contains("no effect on the CPU device"));
    for silent in [
        "NCCL_TESTS_DEVICE",
        "NCCL_VERSION",
        "RINGSMITH_RANK",
        "TORCH_NCCL_BLOCKING_WAIT",
        "RINGSMITH_TEST_SEED",
        "NCCLX",
    ] {
        assert_eq!(said(silent), "");
    }
    for unlike in ["RINGSMITH_FOO", "NCCL_XY"] {
        assert!(!said(unlike).contains("did you mean"), "{}", said(unlike));
    }
    let file = File::new("prefix", "RINGSMTH_SLOTS=8\n");
    let (_, warnings) = read(&[("RINGSMITH_CONF_FILE", file.path())]).expect("only a warning");
    assert!(warnings[0].to_string().contains("did you mean RINGSMITH_SLOTS?"), "{}", warnings[0]);
    let long = "RINGSMITH_".to_owned() + &"X".repeat(100_000);
    assert!(!said(&long).contains("did you mean"));
}

#[test]
fn every_unusable_value_is_named_at_once() {
    let text = mistakes(&[
        ("RINGSMITH_INIT_TIMEOUT_S", "soon"),
        ("NCCL_ALGO", "ringg"),
        ("RINGSMITH_PORT_RANGE", "9-1"),
        ("RINGSMITH_SLOTS", "1"),
        ("NCCL_SOCKET_IFNAME", "eth0;eth1"),
        ("RINGSMITH_LOCAL_RANK", "first"),
        ("NCCL_IB_DISABLE", "maybe"),
        ("RINGSMITH_IB_TC", "256"),
        ("RINGSMITH_IB_SL", "bogus"),
        ("NCCL_IB_GID_INDEX", "-2"),
        ("NCCL_CROSS_NIC", "3"),
        ("RINGSMITH_P2P_DISABLE", "bogus"),
    ]);
    for part in [
        "RINGSMITH_INIT_TIMEOUT_S=soon (environment): expected a number of seconds",
        "NCCL_ALGO=ringg (environment): \"ringg\" is unknown; did you mean \"ring\"?",
        "RINGSMITH_PORT_RANGE=9-1",
        "RINGSMITH_SLOTS=1 (environment): expected a whole number from 2 to 64",
        "NCCL_SOCKET_IFNAME=eth0;eth1",
        "RINGSMITH_LOCAL_RANK=first (environment): expected a whole number",
        "NCCL_IB_DISABLE=maybe (environment): expected 0 or 1",
        "RINGSMITH_IB_TC=256 (environment): expected a whole number from 0 to 255",
        "RINGSMITH_IB_SL=bogus",
        "NCCL_IB_GID_INDEX=-2",
        "NCCL_CROSS_NIC=3",
        "RINGSMITH_P2P_DISABLE=bogus",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn whatever_a_value_is_a_message_is_short_and_obeyed_by_no_terminal() {
    let long = "x".repeat(1 << 20);
    for name in ["RINGSMITH_SLOTS", "NCCL_ALGO", "RINGSMITH_PORT_RANGE", "NCCL_COMM_ID", "NCCL_SOCKET_IFNAME"]
    {
        let text = mistakes(&[(name, &format!("{long}:;-{long}"))]);
        assert!(text.len() < 2000, "{name}: {} bytes", text.len());
        let text = mistakes(&[(name, "a\x1b[31m\nb")]);
        assert!(text.contains("a\\u{1b}[31m\\nb") && !text.contains('\x1b'), "{name}: {text}");
    }
}

#[test]
fn secrets_are_never_shown() {
    let config = config(&[("RINGSMITH_JOB_SECRET", "hunter2")]);
    assert!(!format!("{config:?}").contains("hunter2"));
    let text = mistakes(&[("RINGSMITH_ID", "abcd1234"), ("RINGSMITH_JOB_SECRET", "hunter2")]);
    assert!(
        text.contains("RINGSMITH_ID=(hidden) (environment): ")
            && !text.contains("abcd1234")
            && !text.contains("hunter2"),
        "{text}"
    );
}

#[test]
fn secrets_on_broken_lines_are_not_shown_either() {
    let file = File::new("secret", "RINGSMITH_JOB_SECRET hunter2\nRINGSMITH_ID: abcd1234\n");
    let text = mistakes(&[("RINGSMITH_CONF_FILE", file.path())]);
    assert_eq!(text.matches("(hidden)").count(), 2, "{text}");
    assert!(!text.contains("hunter2") && !text.contains("abcd1234"), "{text}");
}

#[test]
fn mistakes_stand_in_the_order_of_lines() {
    let first = File::new("first", "RINGSMITH_SLOTS=1\njunk\nNCCL_ALGO=rung\nRINGSMITH_INIT_TIMEOUT_S=x\n");
    let second = File::new("second", "RINGSMITH_NET=x\nRINGSMITH_PORT_RANGE=0\n");
    let text = mistakes(&[
        ("NCCL_CONF_FILE", second.path()),
        ("RINGSMITH_CONF_FILE", first.path()),
        ("RINGSMITH_STALL_S", "x"),
    ]);
    let places: Vec<_> = ["(environment)".to_owned()]
        .into_iter()
        .chain((1..=4).map(|line| format!("({}:{line})", first.path())))
        .chain((1..=2).map(|line| format!("({}:{line})", second.path())))
        .map(|place| text.find(&place).unwrap_or_else(|| panic!("{place}: {text}")))
        .collect();
    assert!(places.is_sorted(), "{text}");
}

#[test]
fn ranks_and_ports_have_bounds() {
    for (name, value, range) in [
        ("RINGSMITH_RANK", "16384", "0 to 16383"),
        ("RINGSMITH_WORLD", "0", "1 to 16384"),
        ("RINGSMITH_WORLD", "16385", "1 to 16384"),
        ("RINGSMITH_LOCAL_RANK", "x", "0 to 16383"),
        ("RINGSMITH_COMM_ID", "node0:70000", "1 to 65535"),
        ("RINGSMITH_COMM_ID", "node0:+70", "1 to 65535"),
        ("RINGSMITH_PORT_RANGE", "0-9", "1 to 65535"),
    ] {
        let text = mistakes(&[(name, value)]);
        let told = text.contains(&format!("{name}={value} (environment)")) && text.contains(range);
        assert!(told && text.contains("a whole number from"), "{text}");
    }
}

#[test]
fn sizes_of_slots_are_related() {
    let by_buffer = config(&[("NCCL_BUFFSIZE", "4194304")]);
    assert_eq!((by_buffer.slots, by_buffer.slot_bytes), (8, 512 << 10));
    let with_slots = config(&[("NCCL_BUFFSIZE", "1M"), ("RINGSMITH_SLOTS", "4")]);
    assert_eq!((with_slots.slots, with_slots.slot_bytes), (4, 256 << 10));
    let own = config(&[("RINGSMITH_SLOT_BYTES", "16K"), ("NCCL_BUFFSIZE", "4194304")]);
    assert_eq!(own.slot_bytes, 16 << 10);
    // A value that hung NCCL.
    let text = mistakes(&[("NCCL_BUFFSIZE", "131074")]);
    assert!(text.contains("NCCL_BUFFSIZE=131074") && text.contains("multiple of 1024"), "{text}");
    for wrong in ["1000", "0", "65M", "64KB"] {
        assert!(mistakes(&[("RINGSMITH_SLOT_BYTES", wrong)]).contains("RINGSMITH_SLOT_BYTES"));
    }
    let channels = mistakes(&[("NCCL_MIN_NCHANNELS", "8"), ("RINGSMITH_MAX_CHANNELS", "4")]);
    assert!(
        channels.contains("NCCL_MIN_NCHANNELS=8") && channels.contains("above the most channels, 4"),
        "{channels}"
    );
}

#[test]
fn files_are_read_and_variables_win() {
    let file =
        File::new("conf", "# a comment\n\nNCCL_ALGO = tree\nRINGSMITH_SLOTS=16\nNCCL_SOCKET_IFNAME=eth\n");
    let vars = [("NCCL_CONF_FILE", file.path()), ("NCCL_ALGO", "ring"), ("RINGSMITH_PORT_RANGE", "5000")];
    let (config, warnings) = read(&vars).expect("a sound file");
    let algorithms = config.algorithms.expect("set twice");
    assert!(algorithms.permits("all_reduce", "ring") && !algorithms.permits("all_reduce", "tree"));
    assert_eq!(config.slots, 16);
    assert!(matches!(config.interfaces, InterfaceFilter::Only(_)));
    assert!(warnings.is_empty(), "{warnings:?}");
    // NCCL's name in the environment wins over ours in a file.
    let ours = File::new("ours", "RINGSMITH_NET=socket\n");
    let (config, warnings) =
        read(&[("RINGSMITH_CONF_FILE", ours.path()), ("NCCL_NET", "IB")]).expect("a sound file");
    assert_eq!((config.net, warnings.len()), (Some(Net::Ib), 1));
}

#[test]
fn mistakes_in_files_have_a_line() {
    let file = File::new("bad", "NCCL_ALGO=ring\nNCCL_PROTO=fast\nNCCL_ALGOO=ring\n");
    let text = mistakes(&[("RINGSMITH_CONF_FILE", file.path())]);
    assert!(text.contains("NCCL_PROTO=fast") && text.contains(&format!("{}:2", file.path())), "{text}");
    let no_pair = File::new("pair", "NCCL_ALGO\n =3\n");
    let text = mistakes(&[("RINGSMITH_CONF_FILE", no_pair.path())]);
    assert!(text.contains("NCCL_ALGO (") && text.contains(":1): expected NAME=value"), "{text}");
    assert!(text.contains("=3 (") && text.contains(":2): expected NAME=value"), "{text}");
    let unknown = File::new("unknown", "\nNCCL_ALGOO=ring\n");
    let (_, warnings) = read(&[("NCCL_CONF_FILE", unknown.path())]).expect("only a warning");
    assert!(warnings[0].to_string().contains(":2"), "{}", warnings[0]);
    let pipe = format!("{}.pipe", file.path());
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let refused = mistakes(&[("RINGSMITH_CONF_FILE", &pipe)]);
    std::fs::remove_file(&pipe).expect("our pipe");
    assert!(refused.contains("it is a pipe, and an ordinary file is needed"), "{refused}");
    for unreadable in ["/nonexistent/ringsmith", "/", "/dev/zero"] {
        let text = mistakes(&[("RINGSMITH_CONF_FILE", unreadable)]);
        assert!(text.contains("RINGSMITH_CONF_FILE"), "{text}");
    }
}

#[test]
fn what_must_agree_has_a_value_by_default() {
    let names: Vec<_> = Config::default().agreement().into_iter().map(|(name, _)| name).collect();
    for name in ["ALGO", "PROTO", "SLOTS", "SLOT_BYTES", "MIN_CHANNELS", "MAX_CHANNELS", "NET"] {
        assert!(names.contains(&name), "{name}");
    }
    let spellings = [config(&[("NCCL_ALGO", "Ring,Tree")]), config(&[("RINGSMITH_ALGO", "ring, tree")])];
    assert_eq!(spellings[0].agreement(), spellings[1].agreement());
    assert_ne!(spellings[0].agreement(), Config::default().agreement());
}

#[test]
fn the_documentation_lists_every_setting() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/settings.md");
    let text = std::fs::read_to_string(path).expect("docs/settings.md");
    let (begin, end) = ("<!-- settings begin -->\n", "<!-- settings end -->\n");
    let (head, rest) = text.split_once(begin).expect("the mark of the table's begin");
    let (listed, tail) = rest.split_once(end).expect("the mark of the table's end");
    if std::env::var_os("BLESS").is_some() {
        let table = Config::markdown_table();
        std::fs::write(path, format!("{head}{begin}{table}{end}{tail}"))
            .expect("docs/settings.md can be written");
    } else {
        assert_eq!(listed, Config::markdown_table(), "run this test with BLESS=1");
    }
}

/// Every `.rs` file below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the tree") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_source_names_a_setting_that_does_not_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in ["ir/src", "compiler/src", "runtime/src", "cli/src", "src"] {
        sources(&root.join(folder), &mut files);
    }
    let mut checked = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source is text");
        for (at, prefix) in text.match_indices("RINGSMITH_") {
            let rest = &text[at + prefix.len()..];
            let end = rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
            let name = rest[..end.unwrap_or(rest.len())].trim_end_matches('_');
            // A lone prefix, the placeholder of texts, and the names of tests.
            if matches!(name, "" | "X") || name.starts_with("TEST") {
                continue;
            }
            checked += 1;
            let known = SETTINGS.iter().any(|setting| setting.name == name);
            assert!(
                known,
                "{} names RINGSMITH_{name}, which is not in the table of settings",
                file.display()
            );
        }
    }
    assert!(checked > 20, "only {checked} names were found: the search is broken");
}
