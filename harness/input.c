#include "harness/input.h"

#include <cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 30 };

ng_status ng_read_file(const char *path, const char *what, char **text, size_t *length, ng_error *error) {
    struct stat info;
    ng_status status = NG_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *text = NULL;
    *length = 0;
    if (fd < 0 || fstat(fd, &info)) {
        status = ng_fail(error, NG_IO, "%s: cannot be read: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(info.st_mode) || info.st_size > MOST_BYTES) {
        status = ng_fail(error, NG_IO, "%s: is no %s (not a file, or too large)", path, what);
        goto done;
    }
    *text = malloc((size_t)info.st_size + 1);
    if (!*text) {
        status = ng_fail(error, NG_NO_MEMORY, "out of memory");
        goto done;
    }
    while (*length < (size_t)info.st_size) {
        ssize_t n = read(fd, *text + *length, (size_t)info.st_size - *length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) status = ng_fail(error, NG_IO, "%s: cannot be read: %s", path, strerror(errno));
        if (n <= 0) break;
        *length += (size_t)n;
    }
    (*text)[*length] = 0;
done:
    if (fd >= 0) close(fd);
    return status;
}

const char *ng_text_member(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static ng_status check_schema(const char *path, const char *what, const char *schema, const cJSON *document, ng_error *error) {
    const char *its = ng_text_member(document, "schema");
    size_t family = (size_t)(strrchr(schema, '/') - schema) + 1;
    if (!its || strncmp(its, schema, family))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: is no %s%s%.40s%s", path, what, its ? " (its schema is " : " (it names no schema",
                       its ? its : "", ")");
    if (!strcmp(its, schema)) return NG_OK;
    return ng_fail(error, NG_BAD_ARGUMENT, "%s: is a %.40s; this program knows %s", path, its, schema);
}

ng_status ng_read_document(const char *path, const char *what, const char *schema, cJSON **document, ng_error *error) {
    char *text;
    size_t length;
    const char *end = NULL;
    *document = NULL;
    ng_status status = ng_read_file(path, what, &text, &length, error);
    if (status) goto done;
    *document = cJSON_ParseWithLengthOpts(text, length + 1, &end, true);
    if (!*document) {
        size_t at = end ? (size_t)(end - text) : 0;
        status = ng_fail(error, NG_BAD_ARGUMENT, at + 1 >= length && length ? "%s: is no %s: cut off after %zu bytes"
                                                                           : "%s: is no %s: no JSON at byte %zu",
                         path, what, at);
    } else if (!cJSON_IsObject(*document)) status = ng_fail(error, NG_BAD_ARGUMENT, "%s: is no %s: no JSON object", path, what);
    else status = check_schema(path, what, schema, *document, error);
done:
    if (status) {
        cJSON_Delete(*document);
        *document = NULL;
    }
    free(text);
    return status;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool ends_in(const char *name, const char *ending) {
    size_t length = strlen(name), tail = strlen(ending);
    return length >= tail && !strcmp(name + length - tail, ending) && *name != '.';
}

ng_status ng_list_folder(const char *folder, const char *ending, char ***names, size_t *count, ng_error *error) {
    ng_status status = NG_OK;
    DIR *open = opendir(folder);
    *names = NULL;
    *count = 0;
    if (!open) return ng_fail(error, NG_IO, "%s: cannot be read: %s", folder, strerror(errno));
    for (struct dirent *entry; !status && (entry = readdir(open));) {
        if (!ends_in(entry->d_name, ending)) continue;
        char **grown = realloc(*names, (*count + 1) * sizeof **names), *name = strdup(entry->d_name);
        if (grown) *names = grown;
        if (grown && name) (*names)[(*count)++] = name;
        else {
            free(name);
            status = ng_fail(error, NG_NO_MEMORY, "out of memory");
        }
    }
    closedir(open);
    if (*count) qsort(*names, *count, sizeof **names, by_name);
    if (!status) return NG_OK;
    ng_free_names(*names, *count);
    *names = NULL;
    *count = 0;
    return status;
}

void ng_free_names(char **names, size_t count) {
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}
