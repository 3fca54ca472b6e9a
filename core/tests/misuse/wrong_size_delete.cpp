// delete through a base class without a virtual destructor: the compiler passes the base's size.
#include "misuse.h"

#include <new>

struct base {
  char bytes[24];
};

struct derived : base {
  char more[2000];
};

int main() {
  base *object = static_cast<base *>(hidden(new derived));
  expect_wrong_size(object, sizeof(base));
  delete object;
  trim_heap();
  return 0;
}
