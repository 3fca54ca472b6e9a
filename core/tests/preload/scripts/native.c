/* The native code of Native.java: malloc and free on threads of the virtual machine and on its own. */
#include <jni.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static JavaVM *machine;
static jclass class;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
  (void)reserved;
  JNIEnv *env;
  machine = vm;
  if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_10) != JNI_OK) return JNI_ERR;
  class = (*env)->NewGlobalRef(env, (*env)->FindClass(env, "Native"));
  return JNI_VERSION_10;
}

JNIEXPORT jlong JNICALL Java_Native_allocate(JNIEnv *env, jclass self, jint bytes, jbyte fill) {
  (void)env, (void)self;
  char *block = malloc((size_t)bytes / 2 + 1);
  memset(block, fill, (size_t)bytes / 2 + 1);
  block = realloc(block, (size_t)bytes);
  memset(block + bytes / 2, fill, (size_t)(bytes - bytes / 2));
  return (jlong)(intptr_t)block;
}

JNIEXPORT jlong JNICALL Java_Native_sumAndFree(JNIEnv *env, jclass self, jlong address, jint bytes) {
  (void)env, (void)self;
  const signed char *block = (void *)(intptr_t)address;
  jlong sum = 0;
  for (jint i = 0; i < bytes; i++) sum += block[i];
  free((void *)block);
  return sum;
}

JNIEXPORT jobject JNICALL Java_Native_buffer(JNIEnv *env, jclass self, jint bytes) {
  (void)self;
  void *block = NULL;
  if (posix_memalign(&block, 256, (size_t)bytes) != 0) return NULL;
  return (*env)->NewDirectByteBuffer(env, block, bytes);
}

JNIEXPORT void JNICALL Java_Native_freeBuffer(JNIEnv *env, jclass self, jobject buffer) {
  (void)self;
  free((*env)->GetDirectBufferAddress(env, buffer));
}

JNIEXPORT jstring JNICALL Java_Native_repeat(JNIEnv *env, jclass self, jstring text, jint times) {
  (void)self;
  const char *one = (*env)->GetStringUTFChars(env, text, NULL);
  size_t length = strlen(one);
  char *all = calloc(length, (size_t)times + 1);
  for (jint i = 0; i < times; i++) memcpy(all + (size_t)i * length, one, length);
  jstring result = (*env)->NewStringUTF(env, all);
  (*env)->ReleaseStringUTFChars(env, text, one);
  free(all);
  return result;
}

static void *call(void *rounds) {
  JNIEnv *env;
  jlong sum = 0;
  if ((*machine)->AttachCurrentThread(machine, (void **)&env, NULL) != JNI_OK) return NULL;
  jmethodID method = (*env)->GetStaticMethodID(env, class, "called", "([B)J");
  for (intptr_t i = 0; i < (intptr_t)rounds; i++) {
    jsize bytes = (jsize)(1 + i * 37 % 9000);
    jbyte *block = malloc((size_t)bytes);
    memset(block, 1, (size_t)bytes);
    jbyteArray array = (*env)->NewByteArray(env, bytes);
    (*env)->SetByteArrayRegion(env, array, 0, bytes, block);
    sum += (*env)->CallStaticLongMethod(env, class, method, array) - bytes;
    (*env)->DeleteLocalRef(env, array);
    free(block);
  }
  (*machine)->DetachCurrentThread(machine);
  return (void *)(intptr_t)(sum == 0);
}

/* How many of the threads came to the right sum. */
JNIEXPORT jlong JNICALL Java_Native_callFromThreads(JNIEnv *env, jclass self, jint threads, jint rounds) {
  (void)env, (void)self;
  pthread_t started[16];
  jlong right = 0;
  for (jint i = 0; i < threads; i++) pthread_create(&started[i], NULL, call, (void *)(intptr_t)rounds);
  for (jint i = 0; i < threads; i++) {
    void *result;
    pthread_join(started[i], &result);
    right += result != NULL;
  }
  return right;
}
