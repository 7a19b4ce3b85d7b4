/* Any bytes as what the process that reads Parquet sends: rows end, cells are inside of what came.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pack/source/rows_stream_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static uint64_t read_all(struct rows_stream *s) {
    uint64_t sum = 0;
    for (size_t i = 0; i < s->column_count; i++) {
        s->columns[i].wanted = s->columns[i].kind != 'X';
    }
    while (rows_stream_next(s, NULL) == STATUS_OK) {
        for (size_t i = 0; i < s->column_count; i++) {
            bool too_long;
            const struct table_cell c = rows_stream_cell(s, i, &too_long);
            if (c.size_bytes > ROWS_MAX_FRAME_BYTES || (too_long && c.data)) {
                abort();
            }
            for (size_t k = 0; k < c.size_bytes; k++) {
                sum += (uint8_t)c.data[k];
            }
        }
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    enum { ROOM_BYTES = 1 << 16 };
    static volatile uint64_t sum;
    struct rows_stream *s;
    int ends[2];
    if (size_bytes > ROOM_BYTES || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        return 0;
    }
    if (write(ends[1], data, size_bytes) != (ssize_t)size_bytes) {
        abort();
    }
    shutdown(ends[1], SHUT_WR);
    if (rows_stream_open_fd(&s, ends[0], -1, "x.parquet", NULL) == STATUS_OK) {
        sum = sum + read_all(s);
        rows_stream_close(s);
    }
    close(ends[1]);
    return 0;
}
