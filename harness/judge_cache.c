/* A small cache with the least recently used entry dropped first: consecutive cases often differ only in the recipe or
 * kernel, and then share their source data and exact products. */
#include "harness/judge_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void add_text(ng_key *key, size_t used, const char *format, va_list arguments) {
    if (used < NG_KEY_BYTES) vsnprintf(key->text + used, NG_KEY_BYTES - used, format, arguments);
}

void ng_key_set(ng_key *key, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_text(key, 0, format, arguments);
    va_end(arguments);
}

void ng_key_add(ng_key *key, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_text(key, strlen(key->text), format, arguments);
    va_end(arguments);
}

void *ng_cache_find(ng_cache *cache, const ng_key *key) {
    if (strlen(key->text) + 1 >= NG_KEY_BYTES) return NULL; /* cut: it could stand for two values */
    for (int i = 0; i < cache->count; i++)
        if (!strcmp(cache->entries[i].key.text, key->text)) {
            cache->entries[i].used = cache->now;
            return cache->entries[i].value;
        }
    return NULL;
}

static bool drop_oldest(ng_cache *cache) {
    int oldest = -1;
    for (int i = 0; i < cache->count; i++)
        if (cache->entries[i].used < cache->now && (oldest < 0 || cache->entries[i].used < cache->entries[oldest].used))
            oldest = i;
    if (oldest < 0) return false;
    cache->entries[oldest].release(cache->entries[oldest].value);
    cache->bytes -= cache->entries[oldest].bytes;
    cache->entries[oldest] = cache->entries[--cache->count];
    return true;
}

ng_status ng_cache_put(ng_cache *cache, const ng_key *key, void *value, void (*release)(void *), size_t bytes,
                       ng_error *error) {
    while (cache->bytes + bytes > cache->limit && drop_oldest(cache))
        ;
    if (cache->count == NG_CACHE_ENTRIES && !drop_oldest(cache)) {
        release(value);
        return ng_fail(error, NG_INTERNAL, "one case asked for more than %d cached values", NG_CACHE_ENTRIES);
    }
    cache->entries[cache->count++] = (ng_cache_entry){*key, value, release, bytes, cache->now};
    cache->bytes += bytes;
    return NG_OK;
}

void ng_cache_clear(ng_cache *cache) {
    for (int i = 0; i < cache->count; i++)
        cache->entries[i].release(cache->entries[i].value);
    cache->count = 0;
    cache->bytes = 0;
}
