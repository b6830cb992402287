#include "harness/baseline.h"
#include "harness/input.h"
#include "harness/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_folder(const char *path) {
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

static ng_status read_folder(const char *folder, ng_side *side, ng_error *error) {
    char **names = NULL, **paths = NULL;
    size_t count = 0, made = 0;
    ng_status status = ng_list_folder(folder, ".json", &names, &count, error);
    if (!status && !count) status = ng_fail(error, NG_IO, "%s: holds no records", folder);
    if (!status && !(paths = calloc(count, sizeof *paths))) status = ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (; !status && made < count; made++)
        if (asprintf(&paths[made], "%s/%s", folder, names[made]) < 0) {
            status = ng_fail(error, NG_NO_MEMORY, "out of memory");
            break;
        }
    if (!status) status = ng_side_read((const char *const *)paths, count, side, error);
    for (size_t i = 0; i < made; i++)
        free(paths[i]);
    free(paths);
    ng_free_names(names, count);
    return status;
}

static ng_status none_there(const char *store, const char *name, ng_error *error) {
    char **names, known[600] = "";
    size_t count, used = 0;
    if (!ng_list_folder(store, "", &names, &count, NULL)) {
        for (size_t i = 0; i < count && used < sizeof known; i++)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
        ng_free_names(names, count);
    }
    return ng_fail(error, NG_IO, "no baseline '%.100s': neither a record, nor a folder, nor a name in %.200s%s%s", name, store,
                   *known ? ", which has " : " (which is empty or not there; --save-baseline NAME makes one)", known);
}

ng_status ng_baseline_read(const char *store, const char *name, ng_side *side, ng_error *error) {
    char *folder = NULL;
    struct stat info;
    *side = (ng_side){0};
    if (is_folder(name)) return read_folder(name, side, error);
    if (!stat(name, &info)) return ng_side_read(&name, 1, side, error);
    if (asprintf(&folder, "%s/%s", store, name) < 0) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    ng_status status = is_folder(folder) ? read_folder(folder, side, error) : none_there(store, name, error);
    free(folder);
    return status;
}

/* ---- saving -------------------------------------------------------------------------------------------------------*/
static ng_status make_folder(const char *path, ng_error *error) {
    return mkdir(path, 0777) && errno != EEXIST ? ng_fail(error, NG_IO, "%s: cannot be made: %s", path, strerror(errno)) : NG_OK;
}

static ng_status copy_record(const char *folder, const ng_record_file *record, ng_error *error) {
    char *text = NULL, *path = NULL;
    size_t length;
    ng_output output = {0};
    ng_status status = asprintf(&path, "%s/%.19s-%.8s.json", folder, record->started, record->run) < 0
                           ? ng_fail(error, NG_NO_MEMORY, "out of memory")
                           : ng_read_file(record->path, "record of a run", &text, &length, error);
    if (!status) status = ng_output_open(path, &output, error);
    if (!status) {
        fwrite(text, 1, length, output.stream);
        status = ng_output_commit(&output, error);
    }
    ng_output_discard(&output);
    free(text);
    free(path);
    return status;
}

ng_status ng_baseline_save(const char *store, const char *name, const ng_side *side, ng_error *error) {
    char *folder = NULL;
    if (strchr(name, '/') || *name == '.') return ng_fail(error, NG_BAD_ARGUMENT, "--save-baseline '%.100s': a name, no path", name);
    if (asprintf(&folder, "%s/%s", store, name) < 0) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    ng_status status = make_folder(store, error);
    if (!status) status = make_folder(folder, error);
    for (size_t i = 0; i < side->count && !status; i++)
        status = copy_record(folder, &side->records[i], error);
    free(folder);
    return status;
}
