/* A native addon of Node: buffers that it allocates and Node frees, work in Node's thread pool, finalizers. */
#include <node_api.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                       \
  do {                                    \
    if ((call) != napi_ok) {              \
      napi_throw_error(env, NULL, #call); \
      return NULL;                        \
    }                                     \
  } while (false)

static void release(napi_env env, void *data, void *hint) {
  (void)env, (void)hint;
  free(data);
}

/* buffer(bytes, fill): outside of V8's heap. */
static napi_value buffer(napi_env env, napi_callback_info info) {
  napi_value arguments[2], result;
  size_t count = 2;
  uint32_t bytes, fill;
  CHECK(napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
  CHECK(napi_get_value_uint32(env, arguments[0], &bytes));
  CHECK(napi_get_value_uint32(env, arguments[1], &fill));
  char *data = malloc(bytes);
  memset(data, (int)fill, bytes);
  CHECK(napi_create_external_buffer(env, bytes, data, release, NULL, &result));
  return result;
}

struct work {
  napi_async_work handle;
  napi_deferred deferred;
  uint32_t rounds, sum;
};

/* In a thread of the pool. */
static void churn(napi_env env, void *data) {
  (void)env;
  struct work *work = data;
  char *kept[64] = {NULL};
  for (uint32_t i = 0; i < work->rounds; i++) {
    size_t bytes = 1 + i * 7919 % 60000;
    free(kept[i % 64]);
    kept[i % 64] = realloc(calloc(1, bytes / 2 + 1), bytes);
    kept[i % 64][bytes - 1] = 1;
    work->sum += (uint32_t)kept[i % 64][bytes - 1];
  }
  for (size_t i = 0; i < 64; i++) free(kept[i]);
}

static void done(napi_env env, napi_status status, void *data) {
  struct work *work = data;
  napi_value sum;
  napi_create_uint32(env, status == napi_ok ? work->sum : 0, &sum);
  napi_resolve_deferred(env, work->deferred, sum);
  napi_delete_async_work(env, work->handle);
  free(work);
}

/* churn(rounds): a promise of rounds. */
static napi_value start(napi_env env, napi_callback_info info) {
  napi_value argument, name, promise;
  size_t count = 1;
  struct work *work = calloc(1, sizeof *work);
  CHECK(napi_get_cb_info(env, info, &count, &argument, NULL, NULL));
  CHECK(napi_get_value_uint32(env, argument, &work->rounds));
  CHECK(napi_create_promise(env, &work->deferred, &promise));
  CHECK(napi_create_string_utf8(env, "churn", NAPI_AUTO_LENGTH, &name));
  CHECK(napi_create_async_work(env, NULL, name, churn, done, work, &work->handle));
  CHECK(napi_queue_async_work(env, work->handle));
  return promise;
}

NAPI_MODULE_INIT() {
  napi_value function;
  CHECK(napi_create_function(env, "buffer", NAPI_AUTO_LENGTH, buffer, NULL, &function));
  CHECK(napi_set_named_property(env, exports, "buffer", function));
  CHECK(napi_create_function(env, "churn", NAPI_AUTO_LENGTH, start, NULL, &function));
  CHECK(napi_set_named_property(env, exports, "churn", function));
  return exports;
}
