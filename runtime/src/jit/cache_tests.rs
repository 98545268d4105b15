//! The folder of kernels: what is kept, refused, listed and removed.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::{Arc, Mutex};
use tracing_subscriber::layer::SubscriberExt;

/// A folder that is removed again.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringsmith-test-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        config.cache_dir = Some(self.0.clone());
        config
    }

    fn cache(&self) -> Cache {
        Cache::open(&self.config()).expect("a folder of our own")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What was logged while something ran: level and text of each event.
fn logged<R>(run: impl FnOnce() -> R) -> (R, Vec<String>) {
    struct Collect(Arc<Mutex<Vec<String>>>);
    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Collect {
        fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            let mut text = event.metadata().level().to_string();
            event.record(&mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                let _ = write!(text, " {value:?}");
            });
            self.0.lock().expect("no panic").push(text);
        }
    }
    let lines = Arc::new(Mutex::new(Vec::new()));
    let subscriber = tracing_subscriber::registry().with(Collect(Arc::clone(&lines)));
    let result = tracing::subscriber::with_default(subscriber, run);
    let lines = std::mem::take(&mut *lines.lock().expect("no panic"));
    (result, lines)
}

fn sm_90() -> Architecture {
    "sm_90".parse().expect("an architecture")
}

fn cubin(content: u8) -> Cubin {
    Cubin::new(vec![content; 100], sm_90(), "Compiling entry function 'k' for 'sm_90'\n".to_owned())
}

fn family(source: &str) -> Family {
    Family::new("plan", source, &["-a".to_owned()], sm_90())
}

const V13: Version = Version { major: 13, minor: 0 };
const V12: Version = Version { major: 12, minor: 9 };

/// The only file of a folder.
fn file(folder: &Folder) -> PathBuf {
    let mut entries = std::fs::read_dir(&folder.0).expect("the folder");
    entries.next().expect("a file").expect("an entry").path()
}

#[test]
fn what_is_kept_is_found_again() {
    let folder = Folder::new("kept");
    let key = family("a").key(V13);
    assert_eq!(folder.cache().load(&key), None);
    folder.cache().store(&key, "ring", &cubin(1));
    let cache = folder.cache();
    assert_eq!(cache.load(&key), Some(cubin(1)));
    assert_eq!(cache.load(&family("a").key(V12)), None, "another compiler");
    assert_eq!(cache.load(&family("b").key(V13)), None, "another source");
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&folder.0), mode(&file(&folder))), (0o700, 0o600));
}

#[test]
fn every_part_makes_another_key() {
    let options = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let other = "sm_80".parse().expect("an architecture");
    let families = [
        Family::new("plan", "source", &options(&["-a", "-b"]), sm_90()),
        Family::new("plan", "source", &options(&["-a", "-b"]), other),
        Family::new("plan", "source", &options(&["-a-b"]), sm_90()),
        Family::new("plan", "source", &options(&["-b", "-a"]), sm_90()),
        Family::new("plan", "source-a", &options(&["-b"]), sm_90()),
        Family::new("plans", "ource", &options(&["-a", "-b"]), sm_90()),
        Family::new("", "plansource", &options(&["-a", "-b"]), sm_90()),
    ];
    let names: std::collections::BTreeSet<String> = families
        .iter()
        .flat_map(|family| [V12, V13].map(|version| family.key(version).file_name()))
        .collect();
    assert_eq!(names.len(), 2 * families.len());
    let digests: std::collections::BTreeSet<[u8; 32]> =
        families.iter().flat_map(|family| [V12, V13].map(|version| family.key(version).digest())).collect();
    assert_eq!(digests.len(), names.len());
    assert!(names.iter().all(|name| is_ours(name) && family_in(name).is_some_and(|f| families.contains(&f))));
}

#[test]
fn without_a_compiler_the_newest_is_taken() {
    let folder = Folder::new("versions");
    let cache = folder.cache();
    let a = family("a");
    assert_eq!(cache.load_of_any_version(&a), None);
    let old = Version { major: 9, minor: 2 };
    for (version, content) in [(V12, 12), (V13, 13), (old, 9)] {
        cache.store(&a.key(version), "ring", &cubin(content));
    }
    cache.store(&family("b").key(Version { major: 14, minor: 0 }), "ring", &cubin(14));
    assert_eq!(cache.load_of_any_version(&a), Some((V13, cubin(13))));
    // A damaged one gives way to the next.
    std::fs::write(folder.0.join(a.key(V13).file_name()), "").expect("our file");
    let (found, lines) = logged(|| cache.load_of_any_version(&a));
    assert_eq!(found, Some((V12, cubin(12))));
    assert!(lines.iter().any(|line| line.starts_with("WARN") && line.contains("cut short")), "{lines:?}");
}

/// Damages a kept kernel, and expects a warning with a reason, no kernel, and a sound one after another
/// store.
fn refused(name: &str, damage: impl FnOnce(&Path, Vec<u8>), reason: &str) {
    let folder = Folder::new(name);
    let cache = folder.cache();
    let key = family("a").key(V13);
    cache.store(&key, "ring", &cubin(1));
    let path = file(&folder);
    let bytes = std::fs::read(&path).expect("our file");
    damage(&path, bytes);
    let (found, lines) = logged(|| cache.load(&key));
    assert_eq!(found, None, "{name}");
    let said = lines.iter().find(|line| line.starts_with("WARN")).expect("a warning");
    assert!(said.contains(reason) && said.contains(path.to_str().expect("a plain path")), "{name}: {said}");
    let entries = cache.entries().expect("a listing");
    let listed = entries[0].kernel.as_ref().expect_err("it is damaged").to_string();
    assert!(listed.contains(reason), "{name}: {listed}");
    let (_, lines) = logged(|| cache.store(&key, "ring", &cubin(2)));
    assert_eq!(lines, Vec::<String>::new());
    assert_eq!(cache.load(&key), Some(cubin(2)), "{name}: a new one takes its place");
}

#[test]
fn damaged_files_are_refused_and_replaced() {
    let write = |path: &Path, bytes: &[u8]| std::fs::write(path, bytes).expect("our file");
    refused("empty", |path, _| write(path, &[]), "cut short");
    refused("short", |path, bytes| write(path, &bytes[..bytes.len() - 1]), "cut short");
    refused("long", |path, bytes| write(path, &[&bytes[..], &[0]].concat()), "bytes too many");
    refused(
        "foreign",
        |path, _| write(path, b"not a kernel at all, but long enough"),
        "no kernel of Ringsmith",
    );
    refused(
        "later",
        |path, mut bytes| {
            bytes[8] = 9;
            write(path, &bytes);
        },
        "format 9",
    );
    refused(
        "flipped",
        |path, mut bytes| {
            *bytes.last_mut().expect("a byte") ^= 1;
            write(path, &bytes);
        },
        "checksum",
    );
    refused(
        "other",
        |path, _| {
            let other = family("b").key(V13);
            write(path, &stored::write(&other.digest(), "ring", V13, &cubin(3)));
        },
        "another kernel",
    );
    refused(
        "large",
        |path, _| {
            let file = File::options().write(true).open(path).expect("our file");
            file.set_len(MAX_FILE_BYTES + 1).expect("a sparse file");
        },
        "more than any kernel",
    );
}

#[test]
fn files_of_others_are_refused() {
    let open = |path: &Path, _: Vec<u8>| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).expect("our file");
    };
    refused("open", open, "mode 660");
    let link = |path: &Path, bytes: Vec<u8>| {
        let target = path.with_extension("elsewhere");
        std::fs::write(&target, bytes).expect("our folder");
        std::fs::remove_file(path).expect("our file");
        symlink(target, path).expect("a link");
    };
    refused("link", link, "no regular file");
    let pipe = |path: &Path, _: Vec<u8>| {
        std::fs::remove_file(path).expect("our file");
        let name = path.to_path_buf();
        rustix::fs::mknodat(rustix::fs::CWD, name, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("a pipe");
    };
    refused("pipe", pipe, "no regular file");
    // Another's file cannot be made without being root, but be looked at as another.
    let folder = Folder::new("theirs");
    folder.cache().store(&family("a").key(V13), "ring", &cubin(1));
    let file = File::open(file(&folder)).expect("our file");
    let stat = rustix::fs::fstat(&file).expect("its state");
    check_file(&stat, stat.st_uid).expect("our own");
    let theirs = check_file(&stat, stat.st_uid + 1).expect_err("another's").to_string();
    assert_eq!(theirs, format!("it belongs to user {}", stat.st_uid));
}

#[test]
fn folders_of_others_are_refused() {
    let folder = Folder::new("folders");
    let uid = rustix::process::geteuid().as_raw();
    let open = |uid| Cache::open_folder(folder.0.clone(), uid);
    drop(open(uid).expect("it is made"));
    let theirs = open(uid + 1).expect_err("another's").to_string();
    assert!(theirs.contains(&format!("belongs to user {uid}")) && theirs.contains("RINGSMITH_CACHE_DIR"));
    for (mode, sound) in [(0o755, true), (0o720, false), (0o702, false), (0o1777, false), (0o500, true)] {
        std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(mode)).expect("our folder");
        match open(uid) {
            Ok(_) => assert!(sound, "{mode:o}"),
            Err(error) => {
                let error = error.to_string();
                assert!(!sound && error.contains(&format!("mode {mode:o}")), "{mode:o}: {error}");
            }
        }
    }
    let file = folder.0.join("file");
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o700)).expect("our folder");
    std::fs::write(&file, "").expect("our folder");
    for place in [file.clone(), file.join("below")] {
        let error = Cache::open_folder(place, uid).expect_err("a file is no folder").to_string();
        assert!(error.contains("the folder") && error.contains("RINGSMITH_CACHE_DIR"), "{error}");
    }
}

#[test]
fn the_usual_folder_is_the_users() {
    let vars = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        Config::from_vars(pairs).expect("settings").0
    };
    let nowhere = Cache::open(&vars(&[("HOME", "relative")])).expect_err("no home").to_string();
    assert!(nowhere.contains("XDG_CACHE_HOME") && nowhere.contains("RINGSMITH_CACHE_DIR"), "{nowhere}");
    let home = Folder::new("home");
    let text = home.0.to_str().expect("a plain path");
    let by_home = Cache::open(&vars(&[("HOME", text)])).expect("a home");
    assert_eq!(by_home.folder(), home.0.join(".cache/ringsmith"));
    let by_xdg = Cache::open(&vars(&[("HOME", "/nonexistent"), ("XDG_CACHE_HOME", text)])).expect("a folder");
    assert_eq!(by_xdg.folder(), home.0.join("ringsmith"));
    let asked = home.0.join("asked/for");
    let asked = asked.to_str().expect("a plain path");
    let by_setting = Cache::open(&vars(&[("HOME", text), ("RINGSMITH_CACHE_DIR", asked)])).expect("a folder");
    assert_eq!(by_setting.folder(), Path::new(asked));
}

#[test]
fn a_folder_that_takes_nothing_costs_one_warning() {
    let folder = Folder::new("gone");
    let cache = folder.cache();
    // Whoever runs this, root included, can write nothing into a folder that was removed.
    std::fs::remove_dir(&folder.0).expect("our folder");
    let keys = [family("a").key(V13), family("b").key(V13)];
    let (_, lines) = logged(|| keys.iter().for_each(|key| cache.store(key, "ring", &cubin(1))));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("WARN") && lines[0].contains("kernel ring cannot be kept"), "{lines:?}");
    assert_eq!(logged(|| cache.load(&keys[0])), (None, Vec::new()));
    assert_eq!(cache.load_of_any_version(&family("a")), None);
}

#[test]
fn a_folder_can_be_listed_and_cleared() {
    let folder = Folder::new("clear");
    let cache = folder.cache();
    assert_eq!((cache.entries().expect("a listing").len(), cache.size().expect("a size")), (0, 0));
    cache.store(&family("a").key(V13), "ring", &cubin(1));
    cache.store(&family("b").key(V12), "tree", &cubin(2));
    // Of a process that was killed while it wrote.
    std::fs::write(folder.0.join(".unfinished-1-2-3"), "abc").expect("our folder");
    for theirs in ["notes.txt", "x.kernel", ".unfinishe"] {
        std::fs::write(folder.0.join(theirs), "mine").expect("our folder");
    }
    let entries = cache.entries().expect("a listing");
    let mut names: Vec<String> = Vec::new();
    let mut bytes = 3;
    for entry in &entries {
        let kept = entry.kernel.as_ref().expect("a sound kernel");
        names.push(format!("{} {} {}", kept.name, kept.version, kept.cubin.architecture()));
        bytes += entry.bytes;
    }
    names.sort_unstable();
    assert_eq!(names, ["ring 13.0 sm_90", "tree 12.9 sm_90"]);
    assert_eq!(cache.size().expect("a size"), bytes);
    assert_eq!(cache.clear().expect("our folder"), Cleared { kernels: 2, bytes });
    assert_eq!(cache.size().expect("a size"), 0);
    assert_eq!(std::fs::read_dir(&folder.0).expect("the folder").count(), 3, "others' files stay");
    assert_eq!(cache.clear().expect("our folder"), Cleared::default());
}
