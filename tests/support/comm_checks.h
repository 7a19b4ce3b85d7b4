/*
 * comm_checks: what every group of ranks must do, whatever carries its messages: bodies for
 * comm_threads_run and for ranks that mpirun started.
 */
#ifndef TESTS_SUPPORT_COMM_CHECKS_H
#define TESTS_SUPPORT_COMM_CHECKS_H

#include "tests/support/comm_threads.h"

/* Ranks, hosts; gather, broadcast and merge of sizes around a piece of PIECE_WORDS words; barrier;
 * agree; sums equal in all bits to a plain recursive tree, alone and several in flight; counters
 * equal to the formula in comm.h. cookie: NULL. */
comm_threads_body comm_check_ranks, comm_check_gather, comm_check_broadcast, comm_check_merge,
    comm_check_agree, comm_check_sum, comm_check_sums_in_flight, comm_check_counters;

#endif
