/*
 * openmp_wait: how long OpenMP's threads spin at the end of a loop before they sleep.
 *
 * GNU OpenMP's default spins for milliseconds: a thread that waits for one which lost its core to
 * the loader or to another process burns the core that the other needs. Measured on two cores with
 * two busy neighbours: 83 pairs/s with the default, 423 with 1000 turns; alone 849 and 826.
 */
#ifndef TOOLS_CLI_OPENMP_WAIT_H
#define TOOLS_CLI_OPENMP_WAIT_H

/* To be called first in main. Unless GOMP_SPINCOUNT or OMP_WAIT_POLICY is set, sets the former and
 * starts the program again in its place (same process), because the library reads it only when it
 * is loaded. Goes on without it when that cannot be done. */
void openmp_wait_briefly(char **argv);

#endif
