/*
 * ccstudy_internal: the commands.
 */
#ifndef TOOLS_CCSTUDY_CCSTUDY_INTERNAL_H
#define TOOLS_CCSTUDY_CCSTUDY_INTERNAL_H

int ccstudy_blocks(int argc, char **argv);

#endif
