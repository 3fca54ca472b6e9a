# What find_package(snug) reads. Targets to link with:
#
#   snug::snug       the shared library, which is the program's malloc
#   snug::static     the same as an archive, also for static programs
#   snug::prefixed   malloc as snug_malloc, snug_free ... for a part of a program, beside the malloc that it has
#
# The folder of this file is LIBRARIES/cmake/snug; headers are in the include folder of the same prefix.
get_filename_component(_snug_libraries "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
set(_snug_headers "")
foreach(_snug_prefix "${_snug_libraries}/.." "${_snug_libraries}/../..") # PREFIX/lib, PREFIX/lib/x86_64-linux-gnu
  get_filename_component(_snug_candidate "${_snug_prefix}/include" ABSOLUTE)
  if(NOT _snug_headers AND EXISTS "${_snug_candidate}/snug_malloc.h")
    set(_snug_headers "${_snug_candidate}")
  endif()
endforeach()

foreach(_snug_file "${_snug_libraries}/libsnug.so.0" "${_snug_libraries}/libsnug.a" "${_snug_libraries}/libsnug-prefixed.a"
                   "${_snug_headers}/snug_malloc.h")
  if(NOT EXISTS "${_snug_file}")
    set(snug_FOUND FALSE)
    set(snug_NOT_FOUND_MESSAGE "${_snug_file} is missing; install snug's library and its files for development again.")
    return()
  endif()
endforeach()

# _snug_add(NAME KIND FILE)
function(_snug_add name kind file)
  if(TARGET snug::${name})
    return()
  endif()
  add_library(snug::${name} ${kind} IMPORTED)
  set_target_properties(snug::${name} PROPERTIES
    IMPORTED_LOCATION "${_snug_libraries}/${file}" INTERFACE_INCLUDE_DIRECTORIES "${_snug_headers}")
endfunction()

_snug_add(snug SHARED libsnug.so.0)
set_target_properties(snug::snug PROPERTIES IMPORTED_SONAME libsnug.so.0)
_snug_add(static STATIC libsnug.a)
_snug_add(prefixed STATIC libsnug-prefixed.a)
set_target_properties(snug::static snug::prefixed PROPERTIES INTERFACE_LINK_OPTIONS -pthread)
