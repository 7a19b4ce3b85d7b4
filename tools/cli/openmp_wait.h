/*
 * openmp_wait: limits how long OpenMP's threads spin at the end of a loop before they sleep.
 *
 * By default GNU OpenMP spins for milliseconds. If one thread loses its core to the loader or to
 * another process, the others wait for it and spin on cores that it could use. Measured on two
 * cores with two other busy processes: 83 pairs/s with the default, 423 with 1000 turns; without
 * these processes 849 and 826.
 */
#ifndef TOOLS_CLI_OPENMP_WAIT_H
#define TOOLS_CLI_OPENMP_WAIT_H

/* Call this first in main. Unless GOMP_SPINCOUNT or OMP_WAIT_POLICY is set, sets GOMP_SPINCOUNT and
 * executes the program again in the same process, because the library reads the variable only when
 * it is loaded. If that fails, returns and changes nothing else. */
void openmp_wait_briefly(char **argv);

#endif
