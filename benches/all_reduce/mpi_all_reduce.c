/* MPI_Allreduce of float32 sums, timed as `ringsmith run` times: calls in a row, the average per call, the
 * largest over ranks. Prints one JSON object: {"bytes":B,"time_us":T}.
 *
 *   mpirun -np N mpi_all_reduce BYTES CALLS WARM_UP_CALLS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) {
    fprintf(stderr, "usage: mpi_all_reduce BYTES CALLS WARM_UP_CALLS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  long bytes = atol(argv[1]), calls = atol(argv[2]), warm_up = atol(argv[3]);
  int count = (int)(bytes / 4), rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  float *input = malloc(bytes), *output = malloc(bytes);
  for (int i = 0; i < count; i++) {
    input[i] = (float)(i % 13 + rank);
    output[i] = 0;
  }
  for (long i = 0; i < warm_up; i++) MPI_Allreduce(input, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  double started = MPI_Wtime();
  for (long i = 0; i < calls; i++) MPI_Allreduce(input, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  double own_us = (MPI_Wtime() - started) * 1e6 / (double)calls, largest_us;
  MPI_Reduce(&own_us, &largest_us, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("{\"bytes\":%ld,\"time_us\":%.3f}\n", bytes, largest_us);
  MPI_Finalize();
  return 0;
}
