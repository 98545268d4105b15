//! Printing and reading are inverses, and no text makes a reader panic.
//!
//! Every failure names its seed; `RINGSMITH_TEST_SEED=<seed>` runs that one alone.

mod random;

use random::Random;
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::text::{
    File, MAX_PROGRAM_BYTES, codes, format, parse, parse_kernel_plan, parse_program, parse_schedule,
    print_kernel_plan, print_program, print_schedule, program_without_spans, schedule_without_spans,
};
use ringsmith_ir::types::Collective;

/// A long chain of `else if` is no nesting.
#[test]
fn long_texts_are_read() {
    let chain = "if 0 {\n} else ".repeat(5000);
    let text = format!(
        "program @p(n: ranks) {{\ncollective bcast\nchunks n\nlane 0.0 {{\n{chain}if 1 {{\n}}\n}}\n}}\n"
    );
    let text = text.replace("(n: ranks)", "(n: ranks, root: root)");
    let program = parse_program(&text).expect("a long program");
    assert_eq!(program.collective().map(|l| l.collective), Some(Collective::Broadcast));
    assert_eq!(expand(&program, &Arguments::ranks(1).root(0)).expect("it expands").lanes.len(), 1);
}

/// The seeds to run, `count` unless the environment names one.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let one =
        std::env::var("RINGSMITH_TEST_SEED").ok().map(|s| s.parse::<u64>().expect("a seed is a number"));
    one.map_or(0..count, |seed| seed..seed + 1)
}

fn read<T>(seed: u64, text: &str, result: Result<T, Vec<Diagnostic>>) -> T {
    result.unwrap_or_else(|d| panic!("seed {seed}: {d:#?}\n{text}"))
}

#[test]
fn programs() {
    for seed in seeds(400) {
        let program = random::program(&mut Random::new(seed));
        let text = print_program(&program);
        let back = read(seed, &text, parse_program(&text));
        assert_eq!(print_program(&back), text, "seed {seed}: the text changed");
        assert_eq!(program_without_spans(back), program, "seed {seed}: the program changed\n{text}");
        assert_eq!(read(seed, &text, format(&text)), text, "seed {seed}");
    }
}

#[test]
fn schedules() {
    for seed in seeds(400) {
        let schedule = random::schedule(&mut Random::new(seed));
        let text = print_schedule(&schedule);
        let back = read(seed, &text, parse_schedule(&text));
        assert_eq!(print_schedule(&back), text, "seed {seed}: the text changed");
        assert_eq!(schedule_without_spans(back), schedule, "seed {seed}: the schedule changed\n{text}");
        assert_eq!(read(seed, &text, format(&text)), text, "seed {seed}");
    }
}

#[test]
fn kernel_plans() {
    for seed in seeds(400) {
        let plan = random::kernel_plan(&mut Random::new(seed));
        let text = print_kernel_plan(&plan);
        let back = read(seed, &text, parse_kernel_plan(&text));
        assert_eq!(print_kernel_plan(&back), text, "seed {seed}: the text changed");
        assert_eq!(back, plan, "seed {seed}: the plan changed\n{text}");
    }
}

/// Comments and attributes of a flat text survive formatting, wherever they stand.
#[test]
fn formatting_a_schedule_loses_nothing() {
    for seed in seeds(200) {
        let mut random = Random::new(seed);
        let schedule = random::schedule(&mut random);
        let mut text = String::new();
        let mut comments = Vec::new();
        for line in print_schedule(&schedule).lines() {
            if random.once_in(3) {
                comments.push(format!("// above {}", comments.len()));
                text.push_str(&format!("{}\n\n\n", comments[comments.len() - 1]));
            }
            let op = line.trim_start().starts_with("signal") && random.once_in(2);
            text.push_str(line);
            if op {
                text.push_str("   {protocol=ll}");
            }
            if random.once_in(3) {
                comments.push(format!("// beside {}", comments.len()));
                text.push_str(&format!("\t{}  ", comments[comments.len() - 1]));
            }
            text.push_str(if random.once_in(5) { "\r\n" } else { "\n" });
        }
        let formatted = read(seed, &text, format(&text));
        for comment in &comments {
            assert!(
                formatted.lines().any(|l| l.ends_with(comment)),
                "seed {seed}: lost {comment}\n{formatted}"
            );
        }
        let attributes = text.matches("{protocol=ll}").count();
        assert_eq!(formatted.matches(" { protocol = ll }").count(), attributes, "seed {seed}\n{formatted}");
        assert_eq!(read(seed, &formatted, format(&formatted)), formatted, "seed {seed}: not stable");
        let back = read(seed, &formatted, parse_schedule(&formatted));
        assert_eq!(schedule_without_spans(back), schedule, "seed {seed}: the schedule changed\n{formatted}");
    }
}

/// A text without comments and white space.
fn code(text: &str) -> String {
    let lines = text.lines().map(|l| l.split("//").next().unwrap_or(""));
    lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect()
}

/// Comments of a program survive formatting, wherever they stand.
#[test]
fn formatting_a_program_loses_nothing() {
    for seed in seeds(200) {
        let mut random = Random::new(seed);
        let original = print_program(&random::program(&mut random));
        let mut text = String::new();
        let mut count = 0;
        for line in original.lines() {
            if random.once_in(3) {
                text.push_str(&format!("\n\n\t// above {count};\n"));
                count += 1;
            }
            text.push_str(line.trim_start());
            if !line.contains("//") && random.once_in(3) {
                text.push_str(&format!("// beside {count}; \t"));
                count += 1;
            }
            text.push('\n');
        }
        // A line end inside parentheses is none of the language's, but a comment may stand there.
        let text = text.replacen("min(", &format!("min( // inside {count};\n"), 1);
        count += usize::from(text.contains("inside"));
        let formatted = read(seed, &text, format(&text));
        for i in 0..count {
            assert!(formatted.contains(&format!(" {i};\n")), "seed {seed}: lost {i}\n{text}\n{formatted}");
        }
        assert_eq!(code(&formatted), code(&original), "seed {seed}");
        assert_eq!(read(seed, &formatted, format(&formatted)), formatted, "seed {seed}: not stable");
    }
}

/// Runs every reader on a text; whatever it says, none may panic, and every place must be in the text.
fn no_panic(seed: u64, text: &str) {
    let _quiet = format(text);
    let results = [
        parse(text).map(|file| {
            if let File::Program(program) = file {
                for ranks in [1, 3] {
                    if let Err(found) = expand(&program, &Arguments::ranks(ranks)) {
                        assert!(!found.is_empty(), "seed {seed}: no reason\n{text}");
                    }
                }
            }
        }),
        parse_program(text).map(|_| ()),
        parse_schedule(text).map(|_| ()),
        parse_kernel_plan(text).map(|_| ()),
    ];
    for found in results.into_iter().filter_map(Result::err) {
        assert!(!found.is_empty(), "seed {seed}: refused for no reason\n{text}");
        let twice = found.windows(2).find(|w| w[0] == w[1]);
        assert!(twice.is_none(), "seed {seed}: said twice: {twice:?}\n{text}");
        for label in found.iter().flat_map(|d| &d.labels) {
            let range = label.span.start as usize..label.span.end as usize;
            assert!(text.get(range).is_some(), "seed {seed}: {label:?} is outside\n{text}");
        }
    }
}

#[test]
fn damaged_texts_do_not_panic() {
    const PIECES: [&str; 24] = [
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "->",
        "..",
        "\n",
        "//",
        "r0",
        "-",
        "9223372036854775808",
        "é",
        "\u{0}",
        "let x = ",
        "for k in 0..3 {",
        "if 1 {",
        "else",
        "via",
        "lane",
        "#",
        "0",
        "=",
    ];
    for seed in seeds(1500) {
        let mut random = Random::new(seed);
        let text = match random.below(4) {
            0 => print_program(&random::program(&mut random)),
            1 => print_schedule(&random::schedule(&mut random)),
            2 => print_kernel_plan(&random::kernel_plan(&mut random)),
            _ => include_str!("../samples/ring_all_reduce.sched").to_owned(),
        };
        let mut text: Vec<char> = text.chars().collect();
        for _ in 0..1 + random.below(4) {
            let at = random.below(text.len() + 1);
            let end = (at + random.below(12)).min(text.len());
            match random.below(4) {
                0 => drop(text.drain(at..end)),
                1 => drop(text.splice(at..at, random.pick(&PIECES).chars())),
                2 => {
                    let piece: Vec<char> = text[at..end].to_vec();
                    let to = random.below(text.len() + 1);
                    text.splice(to..to, piece);
                }
                _ => text.truncate(at.max(1)),
            }
        }
        no_panic(seed, &text.into_iter().collect::<String>());
    }
}

#[test]
fn deep_texts_do_not_overflow() {
    let body =
        |line: &str| format!("program @p(n: ranks) {{\n collective all_reduce\n chunks n\n {line}\n}}\n");
    let many = 200_000;
    for line in [
        format!("let x = {}", "(".repeat(many)),
        format!("let x = {}1", "-".repeat(many)),
        format!("let x = 1{}", " + 1".repeat(many)),
        format!("let x = {}", "min(1, ".repeat(many)),
        format!("let x = {}", "1 < (".repeat(many)),
        format!("lane 0.0 {{\n{}", "if 1 {\n".repeat(many)),
        format!("lane 0.0 {{\n{}", "for k in 0..1 {\n".repeat(many)),
        "{".repeat(many),
        "}".repeat(many),
        "x\n".repeat(many),
        "é\n".repeat(many),
        "é ".repeat(many),
        "let n = 1\n".repeat(many),
        format!("link l: 0 -> 0{}", " if 1".repeat(many)),
        format!("lane 0.0{} {{\n }}", " if 1".repeat(many)),
        format!("lane 0.0 {{\n{}", "signal nothing\n".repeat(many)),
    ] {
        let found = parse_program(&body(&line)).expect_err("too deep to be read");
        assert!(found.len() <= 101, "{} mistakes", found.len());
    }
}

#[test]
fn texts_that_are_too_large_are_not_read() {
    let text = format!("program @p(n: ranks) {{\n{}}}\n", "//\n".repeat(MAX_PROGRAM_BYTES / 3));
    let found = parse_program(&text).expect_err("too large");
    assert_eq!(found.iter().map(|d| d.code).collect::<Vec<_>>(), [codes::SOURCE_SIZE]);
}

#[test]
fn no_more_than_a_hundred_mistakes_are_reported() {
    let flat = "schedule @s {\n ranks 1\n collective all_reduce\n chunks 1\n lane r0.0 {\n";
    for (text, mistakes) in [("signal l0\n", 100), ("signal l0\n", 101), ("signal l\n", 101), ("é\n", 101)] {
        let text = format!("{flat}{} }}\n}}\n", text.repeat(mistakes));
        let found = parse_schedule(&text).expect_err("every op is wrong");
        assert_eq!(found.len(), mistakes);
        assert_eq!(found.last().map(|d| d.code == codes::TOO_MANY), Some(mistakes > 100));
    }
}
