/*
 * clean_environment: what the variables and files of whoever runs a test say about S3 and the
 * Hugging Face Hub does not reach it.
 */
#ifndef TESTS_SUPPORT_CLEAN_ENVIRONMENT_H
#define TESTS_SUPPORT_CLEAN_ENVIRONMENT_H

/* Removes the variables and the proxies; HOME is the case's temporary folder. */
void clean_environment(void);

#endif
