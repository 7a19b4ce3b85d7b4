/*
 * manifest_internal: what the manifest's reader and writer both need.
 */
#ifndef FORMATS_MANIFEST_INTERNAL_H
#define FORMATS_MANIFEST_INTERNAL_H

#include "formats/manifest.h"

#define MANIFEST_FORMAT "ccstream-dataset"

#endif
