/* code.h: the ends of the code of the archive's member, which lies among the program's: of what is called often, and of
 * what the compiler keeps apart as rarely called. */
#ifndef SNUG_ARCHIVE_CODE_H
#define SNUG_ARCHIVE_CODE_H

#define CODE_MARK __attribute__((visibility("hidden")))
#define RARE_CODE_MARK __attribute__((visibility("hidden"), cold))

CODE_MARK void archive_code_begins(void);
RARE_CODE_MARK void archive_rare_code_begins(void);
CODE_MARK void archive_code_ends(void);
RARE_CODE_MARK void archive_rare_code_ends(void);

#endif
