// usage: cgo ROUNDS [UID]. Goroutines call C, which calls back; C memory is freed by other threads than its makers.
package main

/*
#include <stdlib.h>
#include <string.h>
#include <pthread.h>

extern long called_back(long number);

static char *make(long number) {
  size_t size = (size_t)(number * 7919 % 60000 + 16);
  char *p = malloc(size);
  memset(p, (int)(number & 127), size);
  return realloc(p, size * 2);
}
static long sum(const char *p, long number) { return p[0] + p[number * 7919 % 60000 + 15] + called_back(number); }
static void *thread_main(void *argument) {
  long total = 0;
  for (int i = 0; i < 200; i++) { char *p = malloc((size_t)i * 100 + 1); p[0] = 1; total += p[0]; free(p); }
  (void)argument;
  return (void *)total;
}
static long c_thread(void) {
  pthread_t thread;
  void *result = NULL;
  if (pthread_create(&thread, NULL, thread_main, NULL) != 0) return -1;
  pthread_join(thread, &result);
  return (long)result;
}
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

//export called_back
func called_back(number C.long) C.long {
	kept := make([]byte, int(number)%5000+1)
	return C.long(len(kept))
}

func round(start int) int64 {
	blocks := make(chan struct {
		block  *C.char
		number int
	}, 64)
	var makers, enders sync.WaitGroup
	sums := make([]int64, 8)
	for maker := 0; maker < 8; maker++ {
		makers.Add(1)
		go func(maker int) {
			defer makers.Done()
			if maker%4 == 0 {
				runtime.LockOSThread() // the thread ends with the goroutine
			}
			for i := 0; i < 400; i++ {
				number := start + maker*400 + i
				blocks <- struct {
					block  *C.char
					number int
				}{C.make(C.long(number)), number}
			}
		}(maker)
	}
	for ender := range sums {
		enders.Add(1)
		go func(ender int) {
			defer enders.Done()
			for got := range blocks {
				sums[ender] += int64(C.sum(got.block, C.long(got.number)))
				C.free(unsafe.Pointer(got.block))
			}
			sums[ender] += 0 * int64(C.c_thread())
		}(ender)
	}
	makers.Wait()
	close(blocks)
	enders.Wait()
	total := int64(0)
	for _, sum := range sums {
		total += sum
	}
	return total
}

// What each thread of this process may do is in /proc; the library's own must not be left behind.
func ownersOfThreads() map[string]bool {
	owners := map[string]bool{}
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		text, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if found := regexp.MustCompile(`(?m)^Uid:\s+(\d+)\s+(\d+)`).FindStringSubmatch(string(text)); found != nil {
			owners[found[1]+"/"+found[2]] = true
		}
	}
	return owners
}

func main() {
	rounds, _ := strconv.Atoi(os.Args[1])
	for i := 0; i < rounds; i++ {
		fmt.Println("round", i, round(i*1000))
		runtime.GC()
		out, err := exec.Command("sh", "-c", "printf child").Output()
		fmt.Println(string(out), err)
	}
	if len(os.Args) > 2 {
		time.Sleep(250 * time.Millisecond) // so long that idle memory is being given back
		uid, _ := strconv.Atoi(os.Args[2])
		if err := syscall.Setuid(uid); err != nil {
			fmt.Println("setuid:", err)
		}
		owners := ownersOfThreads()
		words := []string{}
		for owner := range owners {
			words = append(words, owner)
		}
		if len(owners) == 1 && owners[fmt.Sprintf("%d/%d", uid, uid)] {
			fmt.Println("all threads are", uid)
		} else {
			fmt.Println("threads differ:", strings.Join(words, " "))
		}
		fmt.Println("after", round(7))
	}
	fmt.Println("done")
}
