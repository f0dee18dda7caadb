/* workspace/file_type.h: what a file is, judged by its bytes (libmagic). The only user of libmagic. Threads: any. */
#ifndef BERTH_FILE_TYPE_H
#define BERTH_FILE_TYPE_H

enum { FILE_TYPE_BYTES = 128 };

/* A media type with its charset ("text/plain; charset=utf-8") by the first bytes of a regular file, whose position does not
 * move; "application/octet-stream" where nothing is known. Never by the name or by what an uploader said. Blocks on the disk. */
void file_type_of(int fd, char out[static FILE_TYPE_BYTES]);

#endif
