/*
 * ccdump_internal: the commands of ccdump.
 */
#ifndef TOOLS_CCDUMP_CCDUMP_INTERNAL_H
#define TOOLS_CCDUMP_CCDUMP_INTERNAL_H

#include "tools/inspect/samples.h"

int ccdump_info(int argc, char **argv);
int ccdump_ls(int argc, char **argv);
int ccdump_show(int argc, char **argv);
int ccdump_find(int argc, char **argv);
int ccdump_stats(int argc, char **argv);
int ccdump_duplicates(int argc, char **argv);
int ccdump_verify(int argc, char **argv);
int ccdump_cat(int argc, char **argv);
int ccdump_extract(int argc, char **argv);
int ccdump_state(int argc, char **argv);
int ccdump_popularity(int argc, char **argv);
int ccdump_order(int argc, char **argv);
int ccdump_why(int argc, char **argv);

/* Parses a hash of 16 hexadecimal digits; false: other text. */
bool parse_hash(const char *text, uint64_t *out);

#endif
