/*
 * manifest_internal: what the manifest's reader and writer both need.
 */
#ifndef FORMATS_DATASET_MANIFEST_INTERNAL_H
#define FORMATS_DATASET_MANIFEST_INTERNAL_H

#include "formats/dataset/manifest.h"

#define MANIFEST_FORMAT "ccstream-dataset"

#endif
