/*
 * The options that every command which packs pictures has: which of them, how they are stored, how
 * the run shows itself.
 */
#include "tools/ccpack/ccpack_internal.h"

static const char *const container_names[] = {"tar.zst", "tar", NULL};

#define SHAPE(name) CLI_FIELD(struct ccpack_shape, name)

static const struct cli_option rows[] = {
    {"min-side", 0, CLI_U64, SHAPE(min_side), .min = "0", .max = "65535", .default_text = "0",
     .metavar = "N", .help = "exclude pictures whose shorter side has fewer pixels",
     .group = "Limits"},
    {"max-aspect", 0, CLI_DOUBLE, SHAPE(max_aspect), .min = "0", .max = "65535",
     .default_text = "0", .metavar = "X",
     .help = "exclude pictures whose longer side is more than X times the shorter; 0: none"},
    {"max-pixels", 0, CLI_U64, SHAPE(max_pixels), .min = "1", .max = "134217728",
     .default_text = "134217728", .metavar = "N", .help = "exclude pictures with more pixels"},
    {"max-caption-bytes", 0, CLI_U64, SHAPE(max_caption_bytes), .unit = CLI_UNIT_BYTES, .min = "1",
     .max = "256KiB", .default_text = "256KiB", .metavar = "SIZE",
     .help = "exclude rows with a longer caption"},
    {"resize", 0, CLI_STRING, SHAPE(resize), .default_text = "none", .metavar = "HOW",
     .help = "short:N or long:N reduces that side to N pixels, exact:WxH both sides (16 to 8192); "
             "no side is ever enlarged; all pictures become new JPEGs",
     .group = "Pictures"},
    {"quality", 0, CLI_U64, SHAPE(quality), .min = "1", .max = "100", .default_text = "90",
     .metavar = "N", .help = "quality of the JPEGs that --resize makes"},
    {"phash", 0, CLI_FLAG, SHAPE(phash),
     .help = "store a perceptual hash of every picture in its metadata, as 'phash': 64 bits, which "
             "differ in few where pictures look alike (the DCT hash of ImageHash); see ccdump "
             "duplicates"},
    {"container", 0, CLI_ENUM, SHAPE(container), .choices = container_names,
     .default_text = "tar.zst", .metavar = "KIND",
     .help = "shards as zstd frames, or as plain tars for tools that cannot read zstd",
     .group = "Shards"},
    {"zstd-level", 0, CLI_U64, SHAPE(zstd_level), .min = "1", .max = "19", .default_text = "3",
     .metavar = "N", .help = "level for captions and JSON; pictures are not compressed again"},
    {"shard-samples", 0, CLI_U64, SHAPE(shard_samples), .min = "1", .max = "1048576",
     .default_text = "10000", .metavar = "N", .help = "maximum number of samples of a shard"},
    {"shard-size", 0, CLI_U64, SHAPE(shard_size), .unit = CLI_UNIT_BYTES, .min = "64KiB",
     .max = "1TiB", .default_text = "1GiB", .metavar = "SIZE",
     .help = "maximum size of a shard's samples"},
    {"jobs", 'j', CLI_U64, SHAPE(jobs), .min = "0", .max = "256", .default_text = "0",
     .metavar = "N",
     .help = "threads that check and compress; 0: one for each core; does not change the bytes",
     .group = "Run"},
    {"json", 0, CLI_FLAG, SHAPE(json), .help = "summary as JSON on stdout"},
    {"quiet", 'q', CLI_FLAG, SHAPE(quiet), .help = "errors only"},
};

const struct cli_rows ccpack_shape_rows[] = {CLI_ROWS(rows), {NULL, 0}};

enum status
ccpack_take_shape(struct pack_options *out, const struct ccpack_shape *o, struct error *err) {
    out->filter.min_side_px = (uint32_t)o->min_side;
    out->filter.max_aspect = o->max_aspect;
    out->filter.max_pixels = o->max_pixels;
    out->filter.max_caption_bytes = (uint32_t)o->max_caption_bytes;
    out->quality = (int32_t)o->quality;
    out->phash = o->phash;
    out->container = o->container == 1 ? SHARD_CONTAINER_TAR : SHARD_CONTAINER_TAR_ZSTD;
    out->level = (int)o->zstd_level;
    out->jobs = ccpack_jobs(o->jobs);
    out->shard_samples = (uint32_t)o->shard_samples;
    out->shard_size_bytes = o->shard_size;
    return pack_parse_resize(&out->resize, o->resize, err);
}
