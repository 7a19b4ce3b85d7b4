/* Limits of control groups of both versions, at the root, at the process's own group and between.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "tests/support/test.h"
#include "tools/cli/free_memory.h"

static void put(const char *name, const char *text) {
    struct error err = {0};
    const char *path = test_temp_path("%s", name);
    assert_ok(file_make_parents(file_posix(), path, &err), err);
    test_write_file(path, text, strlen(text));
}

static void expect(const char *cgroup, uint64_t bytes) {
    put("proc/self/cgroup", cgroup);
    assert_int_equal(free_memory_bytes(test_temp_dir()), bytes);
}

TEST(limits_of_the_own_group_and_of_those_above_count) {
    const uint64_t all = (uint64_t)9000 * 1024;
    assert_int_equal(free_memory_bytes(test_temp_dir()), 0);
    put("proc/meminfo", "MemTotal: 20000 kB\nMemAvailable: 8000 kB\nSwapFree: 1000 kB\n");
    assert_int_equal(free_memory_bytes(test_temp_dir()), all);
    put("sys/fs/cgroup/memory.max", "max\n");
    put("sys/fs/cgroup/job/memory.max", "4000000\n");
    put("sys/fs/cgroup/job/step/memory.max", "max\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "3000000\n");
    put("sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "2000000\n");
    expect("0::/\n", all);
    expect("0::/other\n", all);
    expect("0::/job\n", 4000000);
    expect("0::/job/step\n", 4000000);
    expect("0::/job/step/not/mounted\n", 4000000);
    expect("12:cpuset:/slurm/job\n4:memory:/slurm\n1:name=systemd:/x\n0::/\n", 3000000);
    expect("4:memory,hugetlb:/slurm/job\n", 2000000);
    expect("4:cpu,memory:/slurm/job/step\n0::/job\n", 2000000);
    expect("4:memoryx:/slurm/job\n", all);
    expect("", all);
    expect("4:memory\n:\n0::\n\n", all);
    put("sys/fs/cgroup/memory.max", "1000000\n"); /* a container's own root */
    expect("0::/../../docker/abc\n", 1000000);
    expect("4:memory:/docker/abc\n", 1000000);
}
