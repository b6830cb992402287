#include "harness/plugin.h"
#include "harness/worker.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOAD_LIMIT_MS = 30000, MOST_KERNELS = 100000 };

/* ---- what a library must look like --------------------------------------------------------------------------------*/
/* operation/format/backend/variant...: words of lower-case letters, digits, '-', '_', '.', '+', '>'. */
static bool is_kernel_name(const char *name) {
    size_t words = 0;
    if (!name || strlen(name) > 120) return false;
    for (;;) {
        size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.+>");
        if (!length) return false;
        words++;
        name += length;
        if (!*name) return words >= 4;
        if (*name++ != '/') return false;
    }
}

static ng_status check_kernel(const char *path, const ng_kernel *k, uint32_t place, ng_error *error) {
    if (!k) return ng_fail(error, NG_BAD_ARGUMENT, "%s: kernel %u is NULL", path, place);
    if (!is_kernel_name(k->name))
        return ng_fail(error, NG_BAD_ARGUMENT,
                       "%s: kernel %u has the name '%.100s'; expected operation/format/backend/variant in lower-case "
                       "letters, digits, '-', '_', '.', '+', '>'",
                       path, place, k->name ? k->name : "");
    if (!k->launch) return ng_fail(error, NG_BAD_ARGUMENT, "%s: %s has no launch function", path, k->name);
    if ((unsigned)k->op >= NG_OPS || (unsigned)k->backend >= NG_BACKENDS || (unsigned)k->in > NG_NO_FORMAT ||
        (unsigned)k->in_b > NG_NO_FORMAT || (unsigned)k->out > NG_NO_FORMAT)
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: %s has an operation, backend or format that does not exist", path,
                       k->name);
    return NG_OK;
}

static ng_status check_plugin(const char *path, const ng_plugin *plugin, ng_error *error) {
    if (!plugin) return ng_fail(error, NG_BAD_ARGUMENT, "%s: " NG_PLUGIN_ENTRY "() returned NULL", path);
    if (plugin->abi_version != NG_ABI_VERSION)
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: built for plug-in ABI %u; this program has %u: rebuild it", path,
                       plugin->abi_version, NG_ABI_VERSION);
    if (plugin->kernel_bytes != sizeof(ng_kernel))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: its ng_kernel has %u bytes, this program's has %zu: rebuild it", path,
                       plugin->kernel_bytes, sizeof(ng_kernel));
    if (!plugin->count || plugin->count > MOST_KERNELS || !plugin->kernels)
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: offers %u kernels; expected 1 to %d", path, plugin->count,
                       MOST_KERNELS);
    for (uint32_t i = 0; i < plugin->count; i++) {
        ng_status status = check_kernel(path, plugin->kernels[i], i, error);
        if (status) return status;
    }
    return NG_OK;
}

/* A library's own exit code must not change the status, nor end the process before it is known. */
static void leave_at_once(int status, void *unused) {
    (void)unused;
    fflush(NULL);
    _exit(status);
}

static ng_status open_plugin(const char *path, ng_loaded_plugin *loaded, ng_error *error) {
    char *real = realpath(path, NULL); /* a bare name is a file here, not one on the loader's search path */
    if (!real) return ng_fail(error, NG_IO, "%s: cannot be read: %s", path, strerror(errno));
    void *library = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    on_exit(leave_at_once, NULL);
    free(real);
    if (!library) return ng_fail(error, NG_BAD_ARGUMENT, "%s: cannot be loaded: %s", path, dlerror());
    ng_plugin_function entry;
    void *symbol = dlsym(library, NG_PLUGIN_ENTRY);
    memcpy(&entry, &symbol, sizeof entry); /* ISO C converts no object pointer into a function's */
    ng_status status = NG_BAD_ARGUMENT;
    const ng_plugin *plugin = NULL;
    if (!symbol)
        ng_fail(error, NG_BAD_ARGUMENT, "%s: is no plug-in: it does not export " NG_PLUGIN_ENTRY, path);
    else {
        plugin = entry();
        status = check_plugin(path, plugin, error);
    }
    if (!status) *loaded = (ng_loaded_plugin){path, library, plugin};
    return status;
}

/* ---- the throw-away process ---------------------------------------------------------------------------------------*/
static void try_in_child(const char *path, int channel, pid_t parent) {
    ng_error error = {0};
    ng_loaded_plugin loaded;
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(2);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    open_plugin(path, &loaded, &error);
    ssize_t written = write(channel, &error, sizeof error);
    _exit(written == (ssize_t)sizeof error ? 0 : 2);
}

static ng_status read_verdict(const char *path, int channel, pid_t child, ng_error *error) {
    ng_error verdict;
    size_t got = 0;
    struct pollfd fd = {channel, POLLIN, 0};
    int status, ready = 1;
    while (got < sizeof verdict && (ready = poll(&fd, 1, LOAD_LIMIT_MS)) != 0) {
        ssize_t n = read(channel, (char *)&verdict + got, sizeof verdict - got);
        if (n == 0 || (n < 0 && errno != EINTR)) break;
        if (n > 0) got += (size_t)n;
    }
    kill(-child, SIGKILL);
    if (!ready || got == sizeof verdict) kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return ng_fail(error, NG_INTERNAL, "%s: the process that tried it is lost", path);
    if (got == sizeof verdict) {
        if (error && verdict.status) *error = verdict;
        return verdict.status;
    }
    if (!ready)
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: was still loading after %d s", path, LOAD_LIMIT_MS / 1000);
    char how[96];
    ng_describe_end(status, how, sizeof how);
    return ng_fail(error, NG_BAD_ARGUMENT, "%s: a process that loaded it %s", path, how);
}

static ng_status try_plugin(const char *path, ng_error *error) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return ng_fail(error, NG_IO, "%s: no pipe: %s", path, strerror(errno));
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (!child) {
        close(ends[0]);
        try_in_child(path, ends[1], parent);
    }
    close(ends[1]);
    ng_status status = child < 0 ? ng_fail(error, NG_IO, "%s: no process to try it in: %s", path, strerror(errno))
                                 : read_verdict(path, ends[0], child, error);
    close(ends[0]);
    return status;
}

/* ---- the catalogue ------------------------------------------------------------------------------------------------*/
static int by_name(const void *a, const void *b) {
    return strcmp((*(const ng_kernel *const *)a)->name, (*(const ng_kernel *const *)b)->name);
}

static ng_status check_unique(const ng_plugins *plugins, ng_error *error) {
    size_t n = plugins->kernel_count;
    ng_status status = NG_OK;
    const ng_kernel **sorted = malloc((n + 1) * sizeof *sorted);
    if (!sorted) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++)
        sorted[i] = plugins->kernels[i];
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 1; i < n && !status; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            status = ng_fail(error, NG_BAD_ARGUMENT, "two kernels have the name %s", sorted[i]->name);
    free(sorted);
    return status;
}

ng_status ng_plugins_load(const ng_kernel *const *builtin, size_t builtin_count, const char *const *paths,
                          size_t path_count, ng_plugins *plugins, ng_error *error) {
    ng_status status = NG_OK;
    *plugins = (ng_plugins){0};
    size_t count = builtin_count;
    plugins->items = calloc(path_count + 1, sizeof *plugins->items);
    if (!plugins->items) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < path_count; i++) {
        status = try_plugin(paths[i], error);
        if (!status) status = open_plugin(paths[i], &plugins->items[i], error);
        if (status) goto done;
        plugins->count = i + 1;
        count += plugins->items[i].plugin->count;
    }
    plugins->kernels = calloc(count + 1, sizeof *plugins->kernels);
    if (!plugins->kernels) {
        status = ng_fail(error, NG_NO_MEMORY, "out of memory");
        goto done;
    }
    for (size_t i = 0; i < builtin_count; i++)
        plugins->kernels[plugins->kernel_count++] = builtin[i];
    for (size_t p = 0; p < plugins->count; p++)
        for (uint32_t i = 0; i < plugins->items[p].plugin->count; i++)
            plugins->kernels[plugins->kernel_count++] = plugins->items[p].plugin->kernels[i];
    status = check_unique(plugins, error);
done:
    if (status) ng_plugins_free(plugins);
    return status;
}

void ng_plugins_free(ng_plugins *plugins) {
    free(plugins->items); /* libraries stay: unloading runs their code, and the record is not written yet */
    free(plugins->kernels);
    *plugins = (ng_plugins){0};
}

ng_catalogue ng_plugins_catalogue(const ng_plugins *plugins) {
    return (ng_catalogue){plugins->kernels, plugins->kernel_count};
}
