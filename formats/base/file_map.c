#include "formats/base/file_map.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

static enum status map(struct file_map *m,
                       const struct file_system *fs,
                       struct file *f,
                       const char *path,
                       struct error *err) {
    int fd = -1;
    uint64_t offset = 0;
    TRY(fs->descriptor(f, &fd, &offset, err));
    void *at = mmap(NULL, (size_t)m->size_bytes, PROT_READ, MAP_SHARED, fd, (off_t)offset);
    FAIL_ERRNO_IF(at == MAP_FAILED, err, "%s: cannot map %" PRIu64 " bytes", path, m->size_bytes);
    m->mapped = at;
    m->bytes = at;
    return STATUS_OK;
}

enum status file_map_open(struct file_map *out,
                          const struct file_system *fs,
                          const char *path,
                          struct error *err) {
    struct file *f = NULL;
    memset(out, 0, sizeof(*out));
    TRY(fs->open(fs->context, &f, path, FILE_READ, err));
    enum status s = fs->size(f, &out->size_bytes, err);
    const bool maps = s == STATUS_OK && fs->descriptor && out->size_bytes > 0 &&
                      map(out, fs, f, path, NULL) == STATUS_OK;
    if (s == STATUS_OK && !maps) {
        s = file_read_all(fs, &out->read, path, (size_t)1 << 30, err);
        out->bytes = out->read.data;
        out->size_bytes = out->read.size_bytes;
    }
    fs->close(f);
    return s;
}

void file_map_close(struct file_map *m) {
    if (m->mapped) {
        munmap(m->mapped, (size_t)m->size_bytes);
    }
    byte_buffer_fini(&m->read);
    memset(m, 0, sizeof(*m));
}
