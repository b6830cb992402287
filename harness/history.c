/* Tables: what seldom changes is stored once. A case's `outcome` is everything but its time; a night on which nothing changed adds
 * a row of three times a case. `results` is ordered by case, so that a trend reads one stretch of the file. */
#include "harness/history.h"

#include <cJSON.h>
#include <fnmatch.h>
#include <math.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { APPLICATION = 0x6E676869, VERSION = 1 }; /* "nghi" */

static const char schema[] =
    "CREATE TABLE machines(id INTEGER PRIMARY KEY, host TEXT NOT NULL, cpu TEXT NOT NULL, gpu TEXT NOT NULL, uuid TEXT NOT NULL,"
    " UNIQUE(host, cpu, gpu, uuid));"
    "CREATE TABLE runs(id INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, started TEXT NOT NULL, machine INTEGER NOT NULL"
    " REFERENCES machines, level TEXT NOT NULL, seed TEXT NOT NULL, driver TEXT NOT NULL, cublaslt TEXT NOT NULL,"
    " \"commit\" TEXT NOT NULL, dirty INTEGER NOT NULL, kernels TEXT NOT NULL, cases INTEGER NOT NULL, statuses TEXT NOT NULL,"
    " argv TEXT NOT NULL, tags TEXT NOT NULL, fingerprint TEXT NOT NULL);"
    "CREATE TABLE cases(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);"
    "CREATE TABLE outcomes(id INTEGER PRIMARY KEY, case_id INTEGER NOT NULL REFERENCES cases, digest TEXT NOT NULL,"
    " status TEXT NOT NULL, reason TEXT NOT NULL, golden TEXT NOT NULL, nondeterministic INTEGER NOT NULL, bound_ratio REAL,"
    " max_ulp REAL, rms_rel REAL, bias REAL, sqnr_db REAL, beyond_bound INTEGER, predicted INTEGER, differ INTEGER,"
    " recipe_rms_rel REAL, recipe_sqnr_db REAL, saturated REAL, flushed REAL);"
    "CREATE INDEX outcomes_of_case ON outcomes(case_id, digest);"
    "CREATE TABLE results(case_id INTEGER NOT NULL REFERENCES cases, run_id INTEGER NOT NULL REFERENCES runs,"
    " outcome INTEGER NOT NULL REFERENCES outcomes, median_s REAL, q1_s REAL, q3_s REAL, PRIMARY KEY(case_id, run_id)) WITHOUT ROWID;"
    "PRAGMA application_id = 1852270697;" /* APPLICATION */
    "PRAGMA user_version = 1;";

enum {
    FIND_RUN, FIND_MACHINE, ADD_MACHINE, ADD_RUN, FIND_CASE, ADD_CASE, FIND_OUTCOME, ADD_OUTCOME, ADD_RESULT, ALL_RUNS, ALL_CASES,
    POINTS, STATEMENTS,
};

#define OUTCOME_NAMES \
    "digest, status, reason, golden, nondeterministic, bound_ratio, max_ulp, rms_rel, bias, sqnr_db, beyond_bound, predicted, differ," \
    " recipe_rms_rel, recipe_sqnr_db, saturated, flushed"

static const char *const statements[STATEMENTS] = {
    [FIND_RUN] = "SELECT id FROM runs WHERE run = ?1",
    [FIND_MACHINE] = "SELECT id FROM machines WHERE host = ?1 AND cpu = ?2 AND gpu = ?3 AND uuid = ?4",
    [ADD_MACHINE] = "INSERT INTO machines(host, cpu, gpu, uuid) VALUES(?1, ?2, ?3, ?4)",
    [ADD_RUN] = "INSERT INTO runs(run, started, machine, level, seed, driver, cublaslt, \"commit\", dirty, kernels, cases, statuses, argv, tags,"
                " fingerprint) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    [FIND_CASE] = "SELECT id FROM cases WHERE name = ?1",
    [ADD_CASE] = "INSERT INTO cases(name) VALUES(?1)",
    [FIND_OUTCOME] = "SELECT id FROM outcomes WHERE case_id = ?1 AND digest = ?2 AND status = ?3 AND reason = ?4 AND golden = ?5 AND"
                     " nondeterministic = ?6 AND bound_ratio IS ?7 AND max_ulp IS ?8 AND rms_rel IS ?9 AND bias IS ?10 AND sqnr_db IS ?11"
                     " AND beyond_bound IS ?12 AND predicted IS ?13 AND differ IS ?14 AND recipe_rms_rel IS ?15 AND recipe_sqnr_db IS ?16"
                     " AND saturated IS ?17 AND flushed IS ?18",
    [ADD_OUTCOME] = "INSERT INTO outcomes(case_id, " OUTCOME_NAMES ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,"
                    " ?15, ?16, ?17, ?18)",
    [ADD_RESULT] = "INSERT INTO results(case_id, run_id, outcome, median_s, q1_s, q3_s) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    [ALL_RUNS] = "SELECT runs.id, machine, run, started, level, seed, host, cpu, gpu, uuid, driver, cublaslt, \"commit\", kernels, dirty, cases,"
                 " statuses FROM runs JOIN machines ON machines.id = machine ORDER BY started, runs.id",
    [ALL_CASES] = "SELECT id, name FROM cases ORDER BY name",
    [POINTS] = "SELECT run_id, outcome, status, digest, nondeterministic, bound_ratio, bias, sqnr_db, recipe_sqnr_db, median_s, q1_s, q3_s"
               " FROM results JOIN outcomes ON outcomes.id = outcome WHERE results.case_id = ?1",
};

struct ng_history {
    sqlite3 *db;
    char *path;
    sqlite3_stmt *prepared[STATEMENTS];
};

/* ---- errors -------------------------------------------------------------------------------------------------------*/
static ng_status fail(const ng_history *h, int code, ng_error *error) {
    const char *path = h->path;
    switch (code & 0xFF) {
    case SQLITE_NOTADB: return ng_fail(error, NG_BAD_ARGUMENT, "%s: is no history (no SQLite file)", path);
    case SQLITE_CORRUPT: return ng_fail(error, NG_IO, "%s: is damaged; `sqlite3 FILE .recover` saves what can be read", path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return ng_fail(error, NG_IO, "%s: locked by another process; try again, or wait longer (--wait SECONDS)", path);
    case SQLITE_READONLY:
    case SQLITE_PERM: return ng_fail(error, NG_IO, "%s: cannot be written: it or its folder is read-only", path);
    case SQLITE_CANTOPEN: return ng_fail(error, NG_IO, "%s: cannot be opened, or no journal can be made beside it", path);
    case SQLITE_FULL: return ng_fail(error, NG_IO, "%s: cannot be written: no space left on its disk", path);
    case SQLITE_NOMEM: return ng_fail(error, NG_NO_MEMORY, "out of memory");
    case SQLITE_IOERR: return ng_fail(error, NG_IO, "%s: cannot be read or written (%s)", path, h->db ? sqlite3_errmsg(h->db) : "");
    default: return ng_fail(error, NG_INTERNAL, "%s: %s", path, h->db ? sqlite3_errmsg(h->db) : sqlite3_errstr(code));
    }
}

static ng_status execute(ng_history *h, const char *sql, ng_error *error) {
    int code = sqlite3_exec(h->db, sql, NULL, NULL, NULL);
    return code ? fail(h, code, error) : NG_OK;
}

static ng_status prepare(ng_history *h, int which, sqlite3_stmt **statement, ng_error *error) {
    int code = SQLITE_OK;
    if (!h->prepared[which]) code = sqlite3_prepare_v3(h->db, statements[which], -1, SQLITE_PREPARE_PERSISTENT, &h->prepared[which], NULL);
    if (code) return fail(h, code, error);
    *statement = h->prepared[which];
    return NG_OK;
}

/* Runs a statement to its first row; *id is its first column, or the row that it put in, or 0 for no row. */
static ng_status first_id(ng_history *h, sqlite3_stmt *statement, int64_t *id, ng_error *error) {
    int code = sqlite3_step(statement);
    *id = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : sqlite3_stmt_readonly(statement) ? 0 : sqlite3_last_insert_rowid(h->db);
    ng_status status = code == SQLITE_ROW || code == SQLITE_DONE ? NG_OK : fail(h, code, error);
    sqlite3_reset(statement);
    return status;
}

static ng_status number_of(ng_history *h, const char *sql, int64_t *value, ng_error *error) {
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(h->db, sql, -1, &statement, NULL);
    ng_status status = code ? fail(h, code, error) : first_id(h, statement, value, error);
    sqlite3_finalize(statement);
    return status;
}

/* ---- open ---------------------------------------------------------------------------------------------------------*/
/* 0: an empty database, 1: ours. */
static ng_status what_is_it(ng_history *h, bool *ours, ng_error *error) {
    int64_t application = 0, version = 0, tables = 0;
    ng_status status = number_of(h, "PRAGMA application_id", &application, error);
    if (!status) status = number_of(h, "PRAGMA user_version", &version, error);
    if (!status) status = number_of(h, "SELECT count(*) FROM sqlite_schema", &tables, error);
    if (status) return status;
    *ours = application == APPLICATION;
    if (!*ours && tables) return ng_fail(error, NG_BAD_ARGUMENT, "%s: is no history, but an SQLite file of something else", h->path);
    if (*ours && version > VERSION)
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: is a history of version %lld; this program knows %d", h->path, (long long)version, VERSION);
    return NG_OK;
}

/* Two who make the same file: the second waits, then finds it made. */
static ng_status make_tables(ng_history *h, ng_error *error) {
    bool ours = false;
    ng_status status = execute(h, "BEGIN IMMEDIATE", error);
    if (status) return status;
    status = what_is_it(h, &ours, error);
    if (!status && !ours) status = execute(h, schema, error);
    if (!status) status = execute(h, "COMMIT", error);
    if (status) sqlite3_exec(h->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

ng_status ng_history_open(const char *path, ng_history_access access, double wait_s, ng_history **history, ng_error *error) {
    ng_status status = NG_OK;
    bool ours = false;
    ng_history *h = calloc(1, sizeof *h);
    *history = NULL;
    if (!h || !(h->path = strdup(path))) {
        free(h);
        return ng_fail(error, NG_NO_MEMORY, "out of memory");
    }
    int flags = access == NG_HISTORY_WRITE ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READWRITE; /* a reader rolls back too */
    int code = sqlite3_open_v2(path, &h->db, flags, NULL);
    if (code) {
        status = code == SQLITE_CANTOPEN && access == NG_HISTORY_READ ? ng_fail(error, NG_IO, "%s: there is no such history", path) : fail(h, code, error);
        goto done;
    }
    sqlite3_extended_result_codes(h->db, 1);
    sqlite3_busy_timeout(h->db, (int)(1000 * wait_s));
    status = execute(h, "PRAGMA foreign_keys = ON; PRAGMA synchronous = EXTRA", error);
    if (!status) status = what_is_it(h, &ours, error);
    if (!status && access == NG_HISTORY_WRITE && sqlite3_db_readonly(h->db, "main")) status = fail(h, SQLITE_READONLY, error);
    if (!status && !ours && access == NG_HISTORY_WRITE) status = make_tables(h, error);
    else if (!status && !ours) status = ng_fail(error, NG_BAD_ARGUMENT, "%s: is no history: it is empty", path);
done:
    if (status) ng_history_close(h);
    else *history = h;
    return status;
}

void ng_history_close(ng_history *h) {
    if (!h) return;
    for (int i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(h->prepared[i]);
    sqlite3_close(h->db);
    free(h->path);
    free(h);
}

/* ---- add ----------------------------------------------------------------------------------------------------------*/
static void bind_text(sqlite3_stmt *s, int at, const char *text) { sqlite3_bind_text(s, at, text, -1, SQLITE_TRANSIENT); }

static void bind_figure(sqlite3_stmt *s, int at, double value) {
    if (isnan(value)) sqlite3_bind_null(s, at);
    else sqlite3_bind_double(s, at, value);
}

static ng_status bound(ng_history *h, sqlite3_stmt *s, ng_error *error) {
    int code = sqlite3_errcode(h->db) & 0xFF; /* a binding fails for want of memory alone */
    (void)s;
    return code == SQLITE_NOMEM || code == SQLITE_TOOBIG ? fail(h, code, error) : NG_OK;
}

static void bind_machine(sqlite3_stmt *s, const ng_record_file *record) {
    bind_text(s, 1, ng_record_fact(record, "host"));
    bind_text(s, 2, ng_record_fact(record, "cpu.model"));
    bind_text(s, 3, ng_record_fact(record, "gpu.name"));
    bind_text(s, 4, ng_record_fact(record, "gpu.uuid"));
}

ng_status ng_history_machine(ng_history *h, const ng_record_file *record, int64_t *machine, ng_error *error) {
    sqlite3_stmt *s = NULL;
    ng_status status = prepare(h, FIND_MACHINE, &s, error);
    if (status) return status;
    bind_machine(s, record);
    return first_id(h, s, machine, error);
}

static ng_status add_machine(ng_history *h, const ng_record_file *record, int64_t *machine, ng_error *error) {
    sqlite3_stmt *s = NULL;
    ng_status status = ng_history_machine(h, record, machine, error);
    if (status || *machine) return status;
    status = prepare(h, ADD_MACHINE, &s, error);
    if (status) return status;
    bind_machine(s, record);
    return first_id(h, s, machine, error);
}

/* A parsed value as text that SQLite may keep. */
static ng_status bind_json(sqlite3_stmt *s, int at, const cJSON *value, ng_error *error) {
    char *text = value ? cJSON_PrintUnformatted(value) : strdup("{}");
    if (!text) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    bind_text(s, at, text);
    cJSON_free(text);
    return NG_OK;
}

/* "pass 1320, fail 4" */
static void print_statuses(const ng_record_file *record, char *text, size_t capacity) {
    size_t counts[NG_VERDICTS] = {0}, used = 0;
    for (size_t i = 0; i < record->count; i++)
        counts[record->cases[i].result.verdict]++;
    *text = 0;
    for (int v = 0; v < NG_VERDICTS && used < capacity; v++)
        if (counts[v]) used += (size_t)snprintf(text + used, capacity - used, "%s%s %zu", used ? ", " : "", ng_verdict_names[v], counts[v]);
}

static ng_status add_run(ng_history *h, const ng_record_file *record, int64_t machine, int64_t *run, ng_error *error) {
    const cJSON *about = cJSON_GetObjectItemCaseSensitive(record->json, "run");
    const cJSON *git = cJSON_GetObjectItemCaseSensitive(record->fingerprint, "git");
    char seed[24], statuses[256];
    sqlite3_stmt *s = NULL;
    ng_status status = prepare(h, ADD_RUN, &s, error);
    if (status) return status;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)record->seed);
    print_statuses(record, statuses, sizeof statuses);
    bind_text(s, 1, record->run);
    bind_text(s, 2, record->started);
    sqlite3_bind_int64(s, 3, machine);
    bind_text(s, 4, ng_level_names[record->level]);
    bind_text(s, 5, seed);
    bind_text(s, 6, ng_record_fact(record, "driver"));
    bind_text(s, 7, ng_record_fact(record, "cublaslt"));
    bind_text(s, 8, ng_record_fact(record, "git.commit"));
    sqlite3_bind_int(s, 9, cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(git, "dirty")));
    bind_text(s, 10, ng_record_fact(record, "digests.kernels"));
    sqlite3_bind_int64(s, 11, (int64_t)record->count);
    bind_text(s, 12, statuses);
    status = bind_json(s, 13, cJSON_GetObjectItemCaseSensitive(about, "argv"), error);
    if (!status) status = bind_json(s, 14, cJSON_GetObjectItemCaseSensitive(about, "tags"), error);
    if (!status) status = bind_json(s, 15, record->fingerprint, error);
    if (!status) status = bound(h, s, error);
    return status ? status : first_id(h, s, run, error);
}

static ng_status case_row(ng_history *h, const char *id, int64_t *row, ng_error *error) {
    sqlite3_stmt *s = NULL;
    ng_status status = prepare(h, FIND_CASE, &s, error);
    if (status) return status;
    bind_text(s, 1, id);
    status = first_id(h, s, row, error);
    if (status || *row) return status;
    status = prepare(h, ADD_CASE, &s, error);
    if (status) return status;
    bind_text(s, 1, id);
    return first_id(h, s, row, error);
}

static void bind_outcome(sqlite3_stmt *s, int64_t case_row, const ng_result *r) {
    const ng_error_figures *e = &r->error, *q = &r->recipe_error;
    const double figures[] = {
        e->present ? e->bound_ratio : NAN, e->present ? e->max_ulp : NAN, e->present ? e->rms_rel : NAN, e->present ? e->bias : NAN,
        e->present ? e->sqnr_db : NAN,
    };
    sqlite3_bind_int64(s, 1, case_row);
    bind_text(s, 2, r->digest);
    bind_text(s, 3, ng_verdict_names[r->verdict]);
    bind_text(s, 4, r->reason);
    bind_text(s, 5, r->golden);
    sqlite3_bind_int(s, 6, r->nondeterministic);
    for (int i = 0; i < 5; i++)
        bind_figure(s, 7 + i, figures[i]);
    if (e->present) sqlite3_bind_int64(s, 12, e->beyond_bound);
    else sqlite3_bind_null(s, 12);
    for (int i = 0; i < 2; i++)
        if (r->prediction.present) sqlite3_bind_int64(s, 13 + i, i ? r->prediction.differ : r->prediction.elements);
        else sqlite3_bind_null(s, 13 + i);
    bind_figure(s, 15, q->present ? q->rms_rel : NAN);
    bind_figure(s, 16, q->present ? q->sqnr_db : NAN);
    bind_figure(s, 17, r->saturated);
    bind_figure(s, 18, r->flushed);
}

static ng_status outcome_row(ng_history *h, int64_t case_row, const ng_result *result, int64_t *row, ng_error *error) {
    sqlite3_stmt *s = NULL;
    ng_status status = prepare(h, FIND_OUTCOME, &s, error);
    if (status) return status;
    bind_outcome(s, case_row, result);
    status = first_id(h, s, row, error);
    if (status || *row) return status;
    status = prepare(h, ADD_OUTCOME, &s, error);
    if (status) return status;
    bind_outcome(s, case_row, result);
    return first_id(h, s, row, error);
}

static ng_status add_result(ng_history *h, int64_t run, const ng_recorded_case *one, ng_error *error) {
    const ng_speed *speed = &one->result.speed;
    int64_t row, outcome, none;
    sqlite3_stmt *s = NULL;
    ng_status status = case_row(h, one->id, &row, error);
    if (!status) status = outcome_row(h, row, &one->result, &outcome, error);
    if (!status) status = prepare(h, ADD_RESULT, &s, error);
    if (status) return status;
    sqlite3_bind_int64(s, 1, row);
    sqlite3_bind_int64(s, 2, run);
    sqlite3_bind_int64(s, 3, outcome);
    bind_figure(s, 4, speed->present ? speed->median_s : NAN);
    bind_figure(s, 5, speed->present ? speed->q1_s : NAN);
    bind_figure(s, 6, speed->present ? speed->q3_s : NAN);
    return first_id(h, s, &none, error);
}

ng_status ng_history_add(ng_history *h, const ng_record_file *record, bool *added, ng_error *error) {
    int64_t run = 0, machine;
    sqlite3_stmt *s = NULL;
    *added = false;
    if (!*record->run) return ng_fail(error, NG_BAD_ARGUMENT, "%s: its run has no id", record->path);
    ng_status status = execute(h, "BEGIN IMMEDIATE", error);
    if (status) return status;
    status = prepare(h, FIND_RUN, &s, error);
    if (!status) {
        bind_text(s, 1, record->run);
        status = first_id(h, s, &run, error);
    }
    *added = !status && !run;
    if (*added) {
        status = add_machine(h, record, &machine, error);
        if (!status) status = add_run(h, record, machine, &run, error);
        for (size_t i = 0; i < record->count && !status; i++)
            status = add_result(h, run, &record->cases[i], error);
    }
    if (!status) status = execute(h, "COMMIT", error);
    if (!status) return NG_OK;
    *added = false;
    sqlite3_exec(h->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

/* ---- read ---------------------------------------------------------------------------------------------------------*/
static void take_text(sqlite3_stmt *s, int column, char *text, size_t capacity) {
    const unsigned char *value = sqlite3_column_text(s, column);
    snprintf(text, capacity, "%s", value ? (const char *)value : "");
}

static double take_figure(sqlite3_stmt *s, int column) {
    return sqlite3_column_type(s, column) == SQLITE_NULL ? NAN : sqlite3_column_double(s, column);
}

static int verdict_of(const char *name, size_t length) {
    for (int v = 0; v < NG_VERDICTS; v++)
        if (strlen(ng_verdict_names[v]) == length && !strncmp(ng_verdict_names[v], name, length)) return v;
    return NG_FAIL;
}

static void take_statuses(const char *text, int64_t counts[NG_VERDICTS]) {
    while (*text) {
        size_t word = strcspn(text, " ");
        char *end = NULL;
        long long count = strtoll(text + word, &end, 10);
        if (!word || end == text + word) return;
        counts[verdict_of(text, word)] += count;
        text = end + strspn(end, ", ");
    }
}

static void take_run(sqlite3_stmt *s, ng_history_run *r) {
    char seed[24], statuses[256];
    *r = (ng_history_run){.id = sqlite3_column_int64(s, 0), .machine = sqlite3_column_int64(s, 1)};
    struct {
        int column;
        char *text;
        size_t capacity;
    } texts[] = {
        {2, r->run, sizeof r->run},       {3, r->started, sizeof r->started},   {4, r->level, sizeof r->level},    {5, seed, sizeof seed},
        {6, r->host, sizeof r->host},     {7, r->cpu, sizeof r->cpu},           {8, r->gpu, sizeof r->gpu},        {9, r->uuid, sizeof r->uuid},
        {10, r->driver, sizeof r->driver}, {11, r->cublaslt, sizeof r->cublaslt}, {12, r->commit, sizeof r->commit}, {13, r->kernels, sizeof r->kernels},
        {16, statuses, sizeof statuses},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        take_text(s, texts[i].column, texts[i].text, texts[i].capacity);
    r->seed = strtoull(seed, NULL, 10);
    r->dirty = sqlite3_column_int(s, 14) != 0;
    r->cases = sqlite3_column_int64(s, 15);
    take_statuses(statuses, r->statuses);
}

ng_status ng_history_runs(ng_history *h, ng_history_run **runs, size_t *count, ng_error *error) {
    sqlite3_stmt *s = NULL;
    size_t room = 0;
    int code = SQLITE_DONE;
    *runs = NULL;
    *count = 0;
    ng_status status = prepare(h, ALL_RUNS, &s, error);
    while (!status && (code = sqlite3_step(s)) == SQLITE_ROW) {
        if (*count == room) {
            room = room ? 2 * room : 64;
            ng_history_run *grown = realloc(*runs, room * sizeof **runs);
            if (!grown) {
                status = ng_fail(error, NG_NO_MEMORY, "out of memory");
                break;
            }
            *runs = grown;
        }
        take_run(s, &(*runs)[(*count)++]);
    }
    if (!status && code != SQLITE_DONE) status = fail(h, code, error);
    if (h->prepared[ALL_RUNS]) sqlite3_reset(h->prepared[ALL_RUNS]);
    if (!status) return NG_OK;
    free(*runs);
    *runs = NULL;
    *count = 0;
    return status;
}

typedef struct places { /* of runs by their rows */
    const ng_history_run *runs;
    size_t *by_row;          /* index + 1; 0: no such run */
    size_t rows;
} places;

static void take_point(sqlite3_stmt *s, const ng_history_run *run, ng_history_point *p) {
    char status[16];
    *p = (ng_history_point){.run = run, .outcome = sqlite3_column_int64(s, 1), .nondeterministic = sqlite3_column_int(s, 4) != 0};
    take_text(s, 2, status, sizeof status);
    take_text(s, 3, p->digest, sizeof p->digest);
    p->verdict = (ng_verdict)verdict_of(status, strlen(status));
    double *figures[] = {&p->bound_ratio, &p->bias, &p->sqnr_db, &p->recipe_sqnr_db, &p->median_s, &p->q1_s, &p->q3_s};
    for (int i = 0; i < 7; i++)
        *figures[i] = take_figure(s, 5 + i);
}

static int by_time(const void *a, const void *b) {
    const ng_history_run *x = ((const ng_history_point *)a)->run, *y = ((const ng_history_point *)b)->run;
    return (x > y) - (x < y); /* runs are in order of time */
}

/* One case's points into room for all runs. */
static ng_status read_points(ng_history *h, int64_t row, const places *where, ng_history_point *points, size_t *count, ng_error *error) {
    sqlite3_stmt *s = NULL;
    int code = SQLITE_DONE;
    *count = 0;
    ng_status status = prepare(h, POINTS, &s, error);
    if (status) return status;
    sqlite3_bind_int64(s, 1, row);
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
        int64_t run = sqlite3_column_int64(s, 0);
        /* A run that was added after the runs were read is for the next time. */
        if (run > 0 && (size_t)run < where->rows && where->by_row[run]) take_point(s, &where->runs[where->by_row[run] - 1], &points[(*count)++]);
    }
    if (code != SQLITE_DONE) status = fail(h, code, error);
    sqlite3_reset(s);
    if (*count) qsort(points, *count, sizeof *points, by_time);
    return status;
}

/* Keeps what is of one machine and seed, and of that the newest. */
static size_t keep(const ng_history_query *query, ng_history_point *points, size_t count) {
    size_t kept = 0;
    if (!count) return 0;
    int64_t machine = query->machine ? query->machine : points[count - 1].run->machine;
    uint64_t seed = query->machine ? query->seed : points[count - 1].run->seed;
    for (size_t i = 0; i < count; i++)
        if (points[i].run->machine == machine && points[i].run->seed == seed) points[kept++] = points[i];
    if (!query->last || kept <= query->last) return kept;
    memmove(points, points + kept - query->last, query->last * sizeof *points);
    return query->last;
}

ng_status ng_history_each(ng_history *h, const ng_history_query *query, const ng_history_run *runs, size_t run_count,
                          ng_history_visit each, void *context, size_t *matches, ng_error *error) {
    places where = {.runs = runs};
    sqlite3_stmt *s = NULL;
    size_t count;
    int code = SQLITE_DONE;
    ng_status status = NG_OK;
    *matches = 0;
    for (size_t i = 0; i < run_count; i++)
        if ((size_t)runs[i].id >= where.rows) where.rows = (size_t)runs[i].id + 1;
    where.by_row = calloc(where.rows + 1, sizeof *where.by_row);
    ng_history_point *points = calloc(run_count + 1, sizeof *points);
    if (!where.by_row || !points) status = ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < run_count && !status; i++)
        where.by_row[runs[i].id] = i + 1;
    if (!status) status = prepare(h, ALL_CASES, &s, error);
    while (!status && (code = sqlite3_step(s)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(s, 1);
        if (!name || (strcmp(name, query->pattern) && fnmatch(query->pattern, name, 0))) continue;
        status = read_points(h, sqlite3_column_int64(s, 0), &where, points, &count, error);
        if (!status) count = keep(query, points, count);
        if (status || !count) continue;
        ++*matches;
        status = each(context, name, points, count, error);
    }
    if (!status && code != SQLITE_DONE) status = fail(h, code, error);
    if (h->prepared[ALL_CASES]) sqlite3_reset(h->prepared[ALL_CASES]);
    free(where.by_row);
    free(points);
    return status;
}
