//! Means of tensors, by real processes, against one process.

use crate::numbers::{Order, Random, check_mean};
use crate::shards::{Tensor, npy, npy_with, numpy_name, safetensors, safetensors_name};
use crate::{Done, Folder, program, run};
use ringsmith::DataType;
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::Path;

/// Every type in several shapes: odd counts, a scalar, nothing, and one longer than a slot.
fn shard(random: &mut Random) -> Vec<Tensor> {
    let shapes: [(&str, &[usize]); 5] = [
        ("vector", &[7]),
        ("matrix", &[3, 5]),
        ("scalar", &[]),
        ("nothing", &[4, 0, 2]),
        ("long", &[20_011]),
    ];
    let mut tensors = Vec::new();
    for dtype in DataType::ALL {
        for (name, shape) in shapes {
            // Leaked: a name lives as long as the test.
            let name = format!("{dtype}.{name}").leak();
            let bytes = random.bytes(dtype, Tensor::elements(shape));
            tensors.push(Tensor { name, dtype, shape: shape.to_vec(), bytes });
        }
    }
    tensors
}

fn average(folder: &Path, out: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Done {
    let mut command = program("03_average_tensors");
    command.args(arguments).arg("--out").arg(out).arg(folder).envs(settings.iter().copied());
    run(&mut command).well()
}

/// Averages shards of `ranks` ranks and checks every tensor of the result.
fn check_safetensors(ranks: u64, order: Order, settings: &[(&str, &str)]) {
    let seed = 1000 * ranks;
    let folder = Folder::new();
    let shards: Vec<Vec<Tensor>> = (0..ranks).map(|rank| shard(&mut Random(seed + rank))).collect();
    for (rank, tensors) in shards.iter().enumerate() {
        folder.write(&format!("{rank}.safetensors"), &safetensors(tensors));
    }
    let results = Folder::new();
    let out = results.path("mean.safetensors");
    let count = ranks.to_string();
    let done = average(&folder.0, &out, &["--ranks", &count], settings);
    assert!(done.stdout.starts_with(&format!("mean of {ranks} shards\n")), "{}", done.stdout);

    let bytes = std::fs::read(&out).expect("rank 0 has written it");
    let mean = SafeTensors::deserialize(&bytes).expect("a valid file");
    assert_eq!(mean.len(), shards[0].len());
    for (index, tensor) in shards[0].iter().enumerate() {
        let view = mean.tensor(tensor.name).expect("every tensor has a mean");
        assert_eq!(format!("{:?}", view.dtype()), safetensors_name(tensor.dtype));
        assert_eq!(view.shape(), tensor.shape);
        let inputs: Vec<&[u8]> = shards.iter().map(|tensors| &tensors[index].bytes[..]).collect();
        check_mean(tensor.name, tensor.dtype, &inputs, view.data(), order);
    }
    assert_eq!(std::fs::read_dir(&results.0).expect("the folder").count(), 1, "nothing half-written is left");
}

#[test]
fn three_ranks_in_rank_order_give_the_bits_of_one_process() {
    check_safetensors(3, Order::OfRanks, &[("RINGSMITH_ALGO", "one_shot"), ("RINGSMITH_PROTO", "simple")]);
}

#[test]
fn four_ranks_in_rank_order_give_the_bits_of_one_process() {
    check_safetensors(4, Order::OfRanks, &[("RINGSMITH_ALGO", "one_shot"), ("RINGSMITH_PROTO", "simple")]);
}

#[test]
fn three_ranks_by_the_planners_choice_stay_within_the_bound() {
    check_safetensors(3, Order::OfPlan, &[]);
}

#[test]
fn four_ranks_in_rings_over_sockets_stay_within_the_bound() {
    let settings =
        [("RINGSMITH_ALGO", "ring"), ("RINGSMITH_PROTO", "simple"), ("RINGSMITH_SHM_DISABLE", "1")];
    check_safetensors(4, Order::OfPlan, &settings);
}

/// One array per file: every type that numpy has, in both orders, and shapes as above.
#[test]
fn npy_files_keep_type_order_and_shape() {
    let mut random = Random(7);
    let shapes: [&[usize]; 4] = [&[3, 5], &[11], &[], &[0, 3]];
    let types = DataType::ALL.into_iter().filter(|dtype| numpy_name(*dtype).is_some());
    let cases = types.zip(shapes.iter().cycle()).zip([false, true].into_iter().cycle());
    for ((dtype, shape), column_major) in cases {
        let folder = Folder::new();
        let shards: Vec<Tensor> = (0..3)
            .map(|_| {
                let bytes = random.bytes(dtype, Tensor::elements(shape));
                Tensor { name: "array", dtype, shape: shape.to_vec(), bytes }
            })
            .collect();
        for (rank, tensor) in shards.iter().enumerate() {
            folder.write(&format!("shard{rank}.npy"), &npy(tensor, column_major));
        }
        let results = Folder::new();
        let out = results.path("mean.npy");
        // As many ranks as files.
        average(&folder.0, &out, &[], &[("RINGSMITH_ALGO", "one_shot")]);
        let mean = std::fs::read(&out).expect("rank 0 has written it");
        let data = Tensor::elements(shape) * dtype.size_bytes();
        let inputs: Vec<&[u8]> = shards.iter().map(|tensor| &tensor.bytes[..]).collect();
        let (header, got) = mean.split_at(mean.len() - data);
        check_mean("array", dtype, &inputs, got, Order::OfRanks);
        // All but the data is what numpy writes.
        let empty =
            npy(&Tensor { name: "array", dtype, shape: shape.to_vec(), bytes: Vec::new() }, column_major);
        assert_eq!(String::from_utf8_lossy(header), String::from_utf8_lossy(&empty));
    }
}

#[test]
fn headers_that_others_write_are_understood() {
    let data = [1.0f32, 3.0].map(f32::to_le_bytes).concat();
    let headers = [
        (2, "{\"shape\": (2,), \"fortran_order\": False, \"descr\": \"<f4\"}\n"),
        (3, " { 'descr':'<f4' , 'fortran_order':False,'shape':( 2 ) ,} "),
        (1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"),
    ];
    let folder = Folder::new();
    for (rank, (version, header)) in headers.iter().enumerate() {
        folder.write(&format!("{rank}.npy"), &npy_with(*version, header, &data));
    }
    let out = folder.path("mean.safetensors");
    average(&folder.0, &out, &["--ranks", "3"], &[]);
    let bytes = std::fs::read(&out).expect("rank 0 has written it");
    let mean = SafeTensors::deserialize(&bytes).expect("a valid file");
    assert_eq!(mean.tensor("array").expect("the array of a .npy file").data(), data);
}

#[test]
fn the_sample_has_the_mean_that_it_prints() {
    let done = run(&mut program("03_average_tensors")).well();
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "mean of 3 shards",
            "  \"layer.bias\"  bfloat16 [3]  1 0.25 -2",
            "  \"layer.weight\"  float32 [2, 3]  1 1.5 2 2.5 ...",
            "  \"step\"  int64 [1]  200",
        ]
    );
}

#[test]
fn the_mean_goes_into_the_current_folder_unless_told() {
    let (folder, here) = (Folder::new(), Folder::new());
    for rank in 0..2 {
        let tensor = Tensor { name: "array", dtype: DataType::Uint8, shape: vec![1], bytes: vec![10 * rank] };
        folder.write(&format!("{rank}.npy"), &npy(&tensor, false));
    }
    run(program("03_average_tensors").current_dir(&here.0).arg(&folder.0)).well();
    let names: BTreeMap<String, u64> = std::fs::read_dir(&here.0)
        .expect("the folder")
        .map(|entry| entry.expect("an entry"))
        .map(|entry| {
            (entry.file_name().to_string_lossy().into_owned(), entry.metadata().expect("a file").len())
        })
        .collect();
    assert_eq!(names, BTreeMap::from([("mean.npy".to_owned(), 129)]));
}
