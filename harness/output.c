#include "harness/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ng_status open_in_place(const char *path, ng_output *output, ng_error *error) {
    output->stream = strcmp(path, "-") ? fopen(path, "we") : stdout;
    if (!output->stream) return ng_fail(error, NG_IO, "%s: cannot be written: %s", path, strerror(errno));
    return NG_OK;
}

static char *temporary_name(const char *path) {
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    char *name = NULL;
    return asprintf(&name, "%.*s.%s.%ld.part", folder, path, path + folder, (long)getpid()) < 0 ? NULL : name;
}

ng_status ng_output_open(const char *path, ng_output *output, ng_error *error) {
    struct stat info;
    *output = (ng_output){.path = path};
    if (!path) return NG_OK;
    if (!*path) return ng_fail(error, NG_IO, "an output file's name is empty");
    if (!strcmp(path, "-")) return open_in_place(path, output, error);
    if (!stat(path, &info)) {
        if (S_ISDIR(info.st_mode)) return ng_fail(error, NG_IO, "%s: cannot be written: it is a directory", path);
        if (!S_ISREG(info.st_mode)) return open_in_place(path, output, error);
        if (access(path, W_OK)) return ng_fail(error, NG_IO, "%s: cannot be written: %s", path, strerror(errno));
    }
    output->temporary = temporary_name(path);
    if (!output->temporary) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    int fd = open(output->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    output->stream = fd < 0 ? NULL : fdopen(fd, "w");
    if (output->stream) return NG_OK;
    ng_fail(error, NG_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    ng_output_discard(output);
    return NG_IO;
}

ng_status ng_output_commit(ng_output *output, ng_error *error) {
    ng_status status = NG_OK;
    if (!output->stream) return NG_OK;
    errno = 0;
    bool wrong = fflush(output->stream) || ferror(output->stream);
    if (!wrong && output->temporary) wrong = fsync(fileno(output->stream)) != 0;
    int reason = errno ? errno : EIO;
    if (output->stream != stdout && fclose(output->stream) && !wrong) {
        wrong = true;
        reason = errno;
    }
    output->stream = NULL;
    if (!wrong && output->temporary && rename(output->temporary, output->path)) {
        wrong = true;
        reason = errno;
    }
    if (wrong) {
        const char *name = strcmp(output->path, "-") ? output->path : "standard output";
        status = ng_fail(error, NG_IO, "%s: could not be written: %s", name, strerror(reason));
        if (output->temporary) unlink(output->temporary);
    }
    free(output->temporary);
    output->temporary = NULL;
    return status;
}

void ng_output_discard(ng_output *output) {
    if (output->stream && output->stream != stdout) fclose(output->stream);
    if (output->temporary) unlink(output->temporary);
    free(output->temporary);
    output->stream = NULL;
    output->temporary = NULL;
}
