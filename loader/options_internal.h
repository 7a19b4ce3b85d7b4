/*
 * options: checks them against the ranges in loader.h.
 *
 * Threading : pure function.
 */
#ifndef LOADER_OPTIONS_INTERNAL_H
#define LOADER_OPTIONS_INTERNAL_H

#include "loader/loader.h"

/* Returns OK or INVALID. */
enum status options_check(const struct loader_options *opt);

#endif
