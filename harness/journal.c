#include "harness/journal.h"
#include "harness/input.h"

#include <cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- writing ------------------------------------------------------------------------------------------------------*/
static ng_status lock_journal(const char *path, int fd, ng_error *error) {
    if (!flock(fd, LOCK_EX | LOCK_NB)) return NG_OK;
    return ng_fail(error, NG_IO, "%s: another run is writing this journal", path);
}

/* One write for one line: a crash between lines leaves none half done, one inside it leaves a torn last line. */
static ng_status write_line(ng_journal *journal, char *line, size_t length, ng_error *error) {
    while (length) {
        ssize_t n = write(journal->fd, line, length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ng_fail(error, NG_IO, "%s: could not be written: %s", journal->path, strerror(errno));
        line += n;
        length -= (size_t)n;
    }
    if (fdatasync(journal->fd) && errno != EINVAL && errno != EROFS)
        return ng_fail(error, NG_IO, "%s: could not be synced: %s", journal->path, strerror(errno));
    return NG_OK;
}

typedef struct line_buffer {
    char *text;
    size_t length;
    FILE *stream;
    ng_json json;
} line_buffer;

static ng_status begin_line(line_buffer *line, ng_error *error) {
    *line = (line_buffer){0};
    line->stream = open_memstream(&line->text, &line->length);
    if (!line->stream) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    line->json = (ng_json){.out = line->stream, .exact = true};
    ng_json_object(&line->json, NULL);
    return NG_OK;
}

static ng_status end_line(line_buffer *line, ng_journal *journal, ng_error *error) {
    ng_json_end_object(&line->json);
    fputc('\n', line->stream);
    ng_status status = fclose(line->stream) ? ng_fail(error, NG_NO_MEMORY, "out of memory")
                                            : write_line(journal, line->text, line->length, error);
    free(line->text);
    return status;
}

/* Two runs with the same digest run the same cases with the same data. */
static void digest_selection(const ng_run_record *run, char digest[NG_DIGEST_BYTES]) {
    XXH64_hash_t low = run->seed, high = 0;
    for (size_t i = 0; i < run->list->count; i++) {
        const ng_case *c = &run->list->cases[i];
        const int64_t facts[] = {c->problem.m,   c->problem.n,    c->problem.k,      c->sample.row,
                                 c->sample.rows, c->sample.column, c->sample.columns, (int64_t)c->repeats};
        high = XXH3_64bits_withSeed(c->id, strlen(c->id) + 1, high);
        low = XXH3_64bits_withSeed(facts, sizeof facts, low ^ high);
    }
    snprintf(digest, NG_DIGEST_BYTES, "%016" PRIx64 "%016" PRIx64, (uint64_t)high, (uint64_t)low);
}

static ng_status write_header(ng_journal *journal, const ng_run_record *run, ng_error *error) {
    char selection[NG_DIGEST_BYTES], seed[24];
    ng_identity identity[NG_IDENTITIES];
    line_buffer line;
    ng_status status = begin_line(&line, error);
    if (status) return status;
    digest_selection(run, selection);
    snprintf(seed, sizeof seed, "%" PRIu64, run->seed);
    ng_fingerprint_identity(run->fingerprint, identity);
    ng_json *json = &line.json;
    ng_json_text(json, "schema", NG_JOURNAL_SCHEMA);
    ng_json_text(json, "run", run->id);
    ng_json_text(json, "started", run->started);
    ng_json_array(json, "argv");
    for (int i = 0; i < run->argc; i++)
        ng_json_text(json, NULL, run->argv[i]);
    ng_json_end_array(json);
    ng_json_text(json, "level", ng_level_names[run->level]);
    ng_json_text(json, "seed", seed); /* a string: 64 bits do not fit into every reader's numbers */
    ng_json_unsigned(json, "cases", run->list->count);
    ng_json_text(json, "selection", selection);
    ng_json_object(json, "identity");
    for (int i = 0; i < NG_IDENTITIES; i++)
        ng_json_text(json, identity[i].name, identity[i].value);
    ng_json_end_object(json);
    ng_fingerprint_write(json, "fingerprint", run->fingerprint);
    return end_line(&line, journal, error);
}

/* The entry in the folder must survive a power cut too. */
static void sync_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

ng_status ng_journal_create(const char *path, const ng_run_record *run, ng_journal *journal, ng_error *error) {
    *journal = (ng_journal){open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666), path};
    if (journal->fd < 0 && errno == EEXIST)
        return ng_fail(error, NG_IO, "%s: is there already; --resume %s goes on with it, or remove it", path, path);
    if (journal->fd < 0) return ng_fail(error, NG_IO, "%s: cannot be written: %s", path, strerror(errno));
    ng_status status = lock_journal(path, journal->fd, error);
    if (!status) status = write_header(journal, run, error);
    if (status) {
        ng_journal_close(journal);
        unlink(path);
    } else sync_folder(path);
    return status;
}

ng_status ng_journal_append(ng_journal *journal, size_t index, const char *id, const ng_result *result, ng_error *error) {
    line_buffer line;
    if (journal->fd < 0) return NG_OK;
    ng_status status = begin_line(&line, error);
    if (status) return status;
    ng_json_unsigned(&line.json, "case", index);
    ng_json_text(&line.json, "id", id);
    ng_json_object(&line.json, "result");
    ng_result_write(&line.json, result);
    ng_json_end_object(&line.json);
    return end_line(&line, journal, error);
}

ng_status ng_journal_end(ng_journal *journal, const char *finished, ng_error *error) {
    line_buffer line;
    if (journal->fd < 0) return NG_OK;
    ng_status status = begin_line(&line, error);
    if (status) return status;
    ng_json_text(&line.json, "end", finished);
    return end_line(&line, journal, error);
}

void ng_journal_close(ng_journal *journal) {
    if (journal->fd >= 0) close(journal->fd);
    journal->fd = -1;
}

/* ---- reading ------------------------------------------------------------------------------------------------------*/
static ng_status read_header(const char *path, ng_journal_past *past, ng_error *error) {
    const char *schema = ng_text_member(past->header, "schema");
    const char *run = ng_text_member(past->header, "run"), *started = ng_text_member(past->header, "started");
    const cJSON *argv = cJSON_GetObjectItemCaseSensitive(past->header, "argv"), *word;
    const size_t family = strlen(NG_JOURNAL_SCHEMA) - 1;
    if (!schema || strncmp(schema, NG_JOURNAL_SCHEMA, family))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: is no journal of narrowgauge", path);
    if (strcmp(schema, NG_JOURNAL_SCHEMA))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: is a %.40s; this program knows " NG_JOURNAL_SCHEMA, path, schema);
    if (!run || strlen(run) >= sizeof past->run || !started || strlen(started) >= sizeof past->started ||
        !cJSON_IsArray(argv) || cJSON_GetArraySize(argv) < 1)
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: its header lacks \"run\", \"started\" or \"argv\"", path);
    strcpy(past->run, run);
    strcpy(past->started, started);
    past->argv = calloc((size_t)cJSON_GetArraySize(argv) + 1, sizeof *past->argv);
    if (!past->argv) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    cJSON_ArrayForEach(word, argv) {
        if (!cJSON_IsString(word)) return ng_fail(error, NG_BAD_ARGUMENT, "%s: its \"argv\" holds no words", path);
        past->argv[past->argc++] = word->valuestring;
    }
    return NG_OK;
}

/* A case's line, or the end's. */
static ng_status read_line(const char *path, size_t number, const cJSON *line, ng_journal_past *past, ng_error *error) {
    const char *id = ng_text_member(line, "id");
    const cJSON *index = cJSON_GetObjectItemCaseSensitive(line, "case");
    const cJSON *result = cJSON_GetObjectItemCaseSensitive(line, "result");
    if (ng_text_member(line, "end")) {
        past->ended = true;
        return NG_OK;
    }
    if (past->ended) return ng_fail(error, NG_BAD_ARGUMENT, "%s:%zu: a case after the end line", path, number);
    if (!cJSON_IsNumber(index) || index->valuedouble < 0 || index->valuedouble > 1e9 || !id ||
        strlen(id) >= NG_ID_BYTES || !cJSON_IsObject(result))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s:%zu: neither a case nor an end", path, number);
    if ((past->count & (past->count - 1)) == 0) { /* grows at powers of two */
        size_t capacity = past->count ? 2 * past->count : 1;
        ng_journal_entry *entries = realloc(past->entries, capacity * sizeof *entries);
        if (!entries) return ng_fail(error, NG_NO_MEMORY, "out of memory");
        past->entries = entries;
    }
    ng_journal_entry *entry = &past->entries[past->count];
    ng_error inner;
    entry->index = (size_t)index->valuedouble;
    strcpy(entry->id, id);
    if (ng_result_read(result, &entry->result, &inner))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s:%zu: %.200s", path, number, inner.text);
    past->count++;
    return NG_OK;
}

ng_status ng_journal_read(const char *path, ng_journal_past *past, ng_error *error) {
    char *text;
    size_t length, number = 1;
    *past = (ng_journal_past){0};
    ng_status status = ng_read_file(path, "journal", &text, &length, error);
    past->bytes = length;
    for (char *at = text, *end; !status && at < text + length; at = end + 1, number++) {
        end = memchr(at, '\n', (size_t)(text + length - at));
        if (!end) break; /* torn */
        cJSON *line = memchr(at, 0, (size_t)(end - at)) ? NULL : cJSON_ParseWithLength(at, (size_t)(end - at));
        if (!line && end + 1 == text + length && past->header) break; /* torn: its blocks never reached the disk */
        if (number == 1 && cJSON_IsObject(line)) {
            past->header = line;
            status = read_header(path, past, error);
        } else {
            status = !cJSON_IsObject(line) && number == 1
                         ? ng_fail(error, NG_BAD_ARGUMENT, "%s: is no journal of narrowgauge", path)
                     : !cJSON_IsObject(line) ? ng_fail(error, NG_BAD_ARGUMENT, "%s:%zu: is no JSON", path, number)
                                             : read_line(path, number, line, past, error);
            cJSON_Delete(line);
        }
        past->whole_bytes = (size_t)(end + 1 - text);
    }
    if (!status && !past->header) status = ng_fail(error, NG_BAD_ARGUMENT, "%s: holds no whole header line", path);
    if (status) ng_journal_past_free(past);
    free(text);
    return status;
}

void ng_journal_past_free(ng_journal_past *past) {
    cJSON_Delete(past->header);
    free(past->argv);
    free(past->entries);
    *past = (ng_journal_past){0};
}

/* ---- going on -----------------------------------------------------------------------------------------------------*/
static ng_status match_identity(const char *path, const ng_journal_past *past, const ng_run_record *run, ng_error *error) {
    const cJSON *written = cJSON_GetObjectItemCaseSensitive(past->header, "identity");
    ng_identity identity[NG_IDENTITIES];
    ng_fingerprint_identity(run->fingerprint, identity);
    for (int i = 0; i < NG_IDENTITIES; i++) {
        const char *value = ng_text_member(written, identity[i].name);
        if (!value || strcmp(value, identity[i].value))
            return ng_fail(error, NG_BAD_ARGUMENT, "%s: was written with another %s ('%.80s', now '%.80s'); start anew", path,
                           identity[i].name, value ? value : "", identity[i].value);
    }
    return NG_OK;
}

ng_status ng_journal_match(const char *path, const ng_journal_past *past, const ng_run_record *run, ng_result *results,
                           bool *done, ng_error *error) {
    char selection[NG_DIGEST_BYTES], seed[24];
    const char *written = ng_text_member(past->header, "selection"), *its_seed = ng_text_member(past->header, "seed");
    digest_selection(run, selection);
    snprintf(seed, sizeof seed, "%" PRIu64, run->seed);
    if (!its_seed || strcmp(its_seed, seed))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: is of a run with --seed %.24s, this one has %s", path,
                       its_seed ? its_seed : "?", seed);
    if (!written || strcmp(written, selection))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: is of a run of other cases; --resume takes the journal alone", path);
    ng_status status = match_identity(path, past, run, error);
    if (status) return status;
    for (size_t i = 0; i < past->count; i++) {
        const ng_journal_entry *entry = &past->entries[i];
        if (entry->index >= run->list->count || strcmp(entry->id, run->list->cases[entry->index].id))
            return ng_fail(error, NG_BAD_ARGUMENT, "%s: case %zu is no case of this run: %.120s", path, entry->index,
                           entry->id);
        if (done[entry->index])
            return ng_fail(error, NG_BAD_ARGUMENT, "%s: case %zu is there twice: %.120s", path, entry->index, entry->id);
        results[entry->index] = entry->result;
        done[entry->index] = true;
    }
    return NG_OK;
}

ng_status ng_journal_reopen(const char *path, const ng_journal_past *past, ng_journal *journal, ng_error *error) {
    struct stat info;
    *journal = (ng_journal){open(path, O_WRONLY | O_APPEND | O_CLOEXEC), path};
    if (journal->fd < 0) return ng_fail(error, NG_IO, "%s: cannot be written: %s", path, strerror(errno));
    ng_status status = lock_journal(path, journal->fd, error);
    if (!status && fstat(journal->fd, &info))
        status = ng_fail(error, NG_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (!status && (size_t)info.st_size != past->bytes)
        status = ng_fail(error, NG_IO, "%s: another run has just written to this journal", path);
    if (!status && past->bytes > past->whole_bytes && ftruncate(journal->fd, (off_t)past->whole_bytes))
        status = ng_fail(error, NG_IO, "%s: its torn last line could not be cut off: %s", path, strerror(errno));
    if (status) ng_journal_close(journal);
    return status;
}
