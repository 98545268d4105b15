//! The facade as programs use it: typed calls between threads and processes, mistakes, losses.

#[test]
fn alone_is_a_whole_communicator() {
    let comm = ringsmith::Communicator::alone().expect("one rank needs nobody");
    let mut values = [1.0f32, 2.0];
    comm.all_reduce_in_place(&mut values, ringsmith::Op::Sum).expect("alone");
    assert_eq!(values, [1.0, 2.0]);
}
