//! Shards that are damaged, of another kind, or do not belong together: every rank ends, with the same
//! status, and names the file, its rank and the tensor.

use crate::shards::{Tensor, npy, npy_header, npy_with, safetensors, safetensors_with};
use crate::{Done, Folder, program, run};
use ringsmith::DataType;
use std::os::unix::net::UnixListener;

const RANKS: u32 = 3;

fn tensor(name: &'static str, dtype: DataType, shape: &[usize]) -> Tensor {
    let bytes = vec![1; Tensor::elements(shape) * dtype.size_bytes()];
    Tensor { name, dtype, shape: shape.to_vec(), bytes }
}

fn good_safetensors() -> Vec<u8> {
    safetensors(&[tensor("w", DataType::Float32, &[2, 3]), tensor("b", DataType::Bfloat16, &[3])])
}

fn good_npy() -> Vec<u8> {
    npy(&tensor("array", DataType::Float32, &[2, 3]), false)
}

/// Runs three ranks, of which rank 1 has these bytes.
fn with_bad_shard(ending: &str, good: &[u8], bad: &[u8]) -> Done {
    let folder = Folder::new();
    for rank in 0..RANKS {
        folder.write(&format!("{rank}.{ending}"), if rank == 1 { bad } else { good });
    }
    average(&folder)
}

fn average(folder: &Folder) -> Done {
    let results = Folder::new();
    let out = results.path("mean.safetensors");
    let done = run(program("03_average_tensors").args(["--ranks", "3", "--out"]).arg(&out).arg(&folder.0));
    assert!(!out.exists(), "nothing is written");
    done
}

#[test]
fn files_that_are_cut_short_are_refused() {
    for (ending, good) in [("safetensors", good_safetensors()), ("npy", good_npy())] {
        let file = format!("/1.{ending}");
        // Every place in the header would take long; these are in each part of it.
        for len in [0, 1, 5, 6, 7, 8, 9, 10, 30, good.len() - 24, good.len() - 1] {
            with_bad_shard(ending, &good, &good[..len]).refused_on(RANKS, 2, &["rank 1: ", &file]);
        }
        let longer = [&good[..], b"x"].concat();
        with_bad_shard(ending, &good, &longer).refused_on(RANKS, 2, &["rank 1: ", &file]);
    }
}

#[test]
fn npy_files_that_lie_are_refused() {
    let f4 = |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let descr = |descr: &str| npy_header(descr, false, &[2, 3]);
    let data = [0; 24];
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"\x93NUMPX\x01\x00".to_vec(), "does not begin as a .npy file"),
        (b"PK\x03\x04 an archive of numpy".to_vec(), "does not begin as a .npy file"),
        (npy_with(9, &f4("(2, 3)"), &data), "version 9"),
        ([b"\x93NUMPY\x02\x00\xff\xff\xff\xff", &data[..]].concat(), "claims 4294967295 bytes"),
        (npy_with(2, &" ".repeat(20_000), &data), "claims 20000 bytes"),
        (
            npy_with(1, &f4("(2, 4)"), &data),
            "tensor \"array\": float32 [2, 4] needs 32 bytes, the file has 24",
        ),
        (npy_with(1, &f4("(4294967296, 4294967296, 4294967296)"), &data), "more than memory can hold"),
        (npy_with(1, &f4("(99999999999999999999999,)"), &data), "where \"a size\" should be"),
        (npy_with(1, &f4("(-2, -3)"), &data), "where \"a size\" should be"),
        (npy_with(1, &f4("(2, 3"), &data), "where \"a size\" should be"),
        (npy_with(1, "{'descr': '<f4', 'shape': (2 3)}", &data), "where \")\" should be"),
        (npy_with(1, &f4("((((((((((2, 3))))))))))"), &data), "where \"a size\" should be"),
        (npy_with(1, "{'descr': '<f4', 'shape': (2, 3)}", &data), "lacks \"fortran_order\""),
        (npy_with(1, "{'descr': '<f4', 'descr': '<f4'}", &data), "\"descr\" twice"),
        (npy_with(1, "{'descr': '<f4', 'more': 1}", &data), "unknown key \"more\""),
        (npy_with(1, "{'descr': '<f4", &data), "has no end"),
        (npy_with(1, &format!("{} 1", f4("(2, 3)")), &data), "something follows"),
        (npy_with(1, "\u{1b}[2J", &data), "where \"{\" should be"),
        (npy_with(1, &descr(">f4"), &data), "\">f4\" is big endian"),
        (npy_with(1, &descr("<c8"), &data), "\"<c8\" cannot be averaged"),
        (npy_with(1, &descr("|O"), &data), "\"|O\" cannot be averaged"),
        (npy_with(1, &descr("|b1"), &data), "\"|b1\" cannot be averaged"),
        (npy_with(1, &descr("<i2"), &data), "\"<i2\" cannot be averaged"),
        (npy_with(1, &descr("é4"), &data), "\"é4\" cannot be averaged"),
        (npy_with(1, &descr(""), &data), "\"\" cannot be averaged"),
        (
            npy_with(1, "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (3,), }", &data),
            "where \"'\" should be",
        ),
    ];
    for (bytes, words) in cases {
        with_bad_shard("npy", &good_npy(), &bytes).refused_on(RANKS, 2, &["rank 1: ", "/1.npy", words]);
    }
    let no_text = npy_with(1, "{}", b"").iter().map(|byte| byte | 0x80).collect::<Vec<_>>();
    with_bad_shard("npy", &good_npy(), &no_text).refused_on(RANKS, 2, &["rank 1: ", "/1.npy"]);
}

#[test]
fn safetensors_files_that_lie_are_refused() {
    let row = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let data = [0; 24];
    let f32s = |shape: &str, offsets: &str| safetensors_with(&row("F32", shape, offsets), &data);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"not safetensors at all".to_vec(), "no valid .safetensors file"),
        ([&u64::MAX.to_le_bytes()[..], b"{}"].concat(), "no valid .safetensors file"),
        ([&(1u64 << 40).to_le_bytes()[..], b"{}"].concat(), "no valid .safetensors file"),
        (safetensors_with("{", &data), "no valid .safetensors file"),
        (safetensors_with(&"[".repeat(100_000), &data), "no valid .safetensors file"),
        (f32s("[2,3]", "[0,20]"), "no valid .safetensors file"),
        (f32s("[2,3]", "[4,28]"), "no valid .safetensors file"),
        (f32s("[2,3]", "[24,0]"), "no valid .safetensors file"),
        (f32s("[2,4]", "[0,24]"), "no valid .safetensors file"),
        (f32s("[4294967296,4294967296,4294967296]", "[0,24]"), "no valid .safetensors file"),
        (f32s("[-2,-3]", "[0,24]"), "no valid .safetensors file"),
        (safetensors_with(&row("X9", "[6]", "[0,24]"), &data), "no valid .safetensors file"),
        (
            safetensors_with(&row("I16", "[12]", "[0,24]"), &data),
            "tensor \"w\": the type I16 cannot be averaged",
        ),
        (safetensors_with(&row("BOOL", "[24]", "[0,24]"), &data), "tensor \"w\": the type BOOL cannot be"),
    ];
    for (bytes, words) in cases {
        let done = with_bad_shard("safetensors", &good_safetensors(), &bytes);
        done.refused_on(RANKS, 2, &["rank 1: ", "/1.safetensors", words]);
    }
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = Folder::new();
    folder.write("0.npy", &good_npy());
    folder.write("2.npy", &good_npy());
    // Opening a socket or a pipe for reading may wait for ever.
    let _socket = UnixListener::bind(folder.path("1.npy")).expect("a socket");
    average(&folder).refused_on(RANKS, 2, &["rank 1: ", "/1.npy: not a file"]);
    std::fs::remove_file(folder.path("1.npy")).expect("it was there");
    std::fs::create_dir(folder.path("1.npy")).expect("a folder");
    average(&folder).refused_on(RANKS, 2, &["rank 1: ", "/1.npy: not a file"]);
    std::fs::remove_dir(folder.path("1.npy")).expect("it was there");
    std::os::unix::fs::symlink("/nowhere", folder.path("1.npy")).expect("a link");
    average(&folder).refused_on(RANKS, 2, &["rank 1: ", "/1.npy: No such file"]);
}

#[test]
fn too_few_shards_or_no_folder_are_refused() {
    let folder = Folder::new();
    average(&folder).refused_on(RANKS, 2, &["rank 0: ", "0 shards for 3 ranks", "(and 2 more ranks failed)"]);
    folder.write("a.npy", &good_npy());
    folder.write("b.npy", &good_npy());
    folder.write("readme.txt", b"no shard");
    average(&folder).refused_on(RANKS, 2, &["rank 0: ", "2 shards for 3 ranks"]);
    let done = run(program("03_average_tensors").args(["--ranks", "2", "/no/such/folder"]));
    done.refused_on(2, 2, &["rank 0: /no/such/folder: No such file"]);
    let done = run(program("03_average_tensors").arg("/no/such/folder"));
    done.refused_on(1, 2, &["rank 0: /no/such/folder: No such file"]);
}

#[test]
fn shards_that_do_not_belong_together_are_refused() {
    let file = |tensors: &[Tensor]| safetensors(tensors);
    let w = |shape: &[usize]| tensor("w", DataType::Float32, shape);
    let b = || tensor("b", DataType::Bfloat16, &[3]);
    let good = || file(&[w(&[2, 3]), b()]);
    let cases: [(Vec<u8>, [&str; 3]); 6] = [
        (
            file(&[w(&[3, 2]), b()]),
            ["tensor \"w\" is float32 [3, 2] on rank 1", "/1.safetensors", "float32 [2, 3] on rank 0"],
        ),
        (
            file(&[w(&[6]), b()]),
            ["tensor \"w\" is float32 [6] on rank 1", "/1.safetensors", "/0.safetensors"],
        ),
        (
            file(&[tensor("w", DataType::Int32, &[2, 3]), b()]),
            ["tensor \"w\" is int32 [2, 3] on rank 1", "/1.safetensors", "float32 [2, 3] on rank 0"],
        ),
        (file(&[b()]), ["tensor \"w\" is missing on rank 1", "/1.safetensors", "float32 [2, 3] on rank 0"]),
        (
            file(&[w(&[2, 3]), b(), tensor("x", DataType::Int8, &[])]),
            ["tensor \"x\" is int8 [] on rank 1", "/1.safetensors", "missing on rank 0"],
        ),
        (file(&[]), ["is missing on rank 1", "/1.safetensors", "/0.safetensors"]),
    ];
    for (bad, words) in cases {
        with_bad_shard("safetensors", &good(), &bad).refused_on(RANKS, 1, &words);
    }
    let rows = npy(&tensor("array", DataType::Float32, &[2, 2]), false);
    let columns = npy(&tensor("array", DataType::Float32, &[2, 2]), true);
    let words = ["tensor \"array\" is float32 [2, 2], column-major on rank 1", "/1.npy", "/0.npy"];
    with_bad_shard("npy", &rows, &columns).refused_on(RANKS, 1, &words);
}

#[test]
fn names_cannot_write_to_the_terminal() {
    let name = "\\u001b[2J\\n\\u0007";
    let bad = safetensors(&[tensor(name, DataType::Float32, &[1])]);
    let done = with_bad_shard("safetensors", &good_safetensors(), &bad);
    assert_eq!(done.status, Some(1));
    assert!(!done.stderr.contains(['\u{1b}', '\u{7}']), "{:?}", done.stderr);
}

#[test]
fn a_mean_that_cannot_be_written_is_told_to_every_rank() {
    let folder = Folder::new();
    for rank in 0..RANKS {
        folder.write(&format!("{rank}.safetensors"), &good_safetensors());
    }
    let average = |out: &str| run(program("03_average_tensors").args(["--out", out]).arg(&folder.0));
    average("/no/such/folder/m.safetensors").refused_on(
        RANKS,
        3,
        &["rank 0: /no/such/folder/m.safetensors: No such"],
    );
    let out = folder.path("m.npy").display().to_string();
    average(&out).refused_on(RANKS, 2, &["rank 0: ", "m.npy: a .npy file holds one tensor, not 2"]);
    for rank in 0..RANKS {
        let bytes = safetensors(&[tensor("b", DataType::Bfloat16, &[3])]);
        folder.write(&format!("{rank}.safetensors"), &bytes);
    }
    average(&out).refused_on(RANKS, 2, &["rank 0: ", ".npy has no type for bfloat16"]);
    assert!(!folder.path("m.npy").exists());
}
