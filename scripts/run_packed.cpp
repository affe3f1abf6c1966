// Runs packed launches with the engine that it is linked with: for each PATH given, the result buffer goes to
// PATH.out. Compiled by scripts/compare_builds.py.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
void* allocate(uint32_t num_bytes);
int32_t create(const uint8_t* buffer, uint32_t num_bytes);
int32_t run_slice(uint32_t max_events);
uint8_t* results();
}

int main(int num_words, char** words) {
  for (int place = 1; place < num_words; place++) {
    FILE* file = fopen(words[place], "rb");
    if (file == nullptr) {
      perror(words[place]);
      return 1;
    }
    fseek(file, 0, SEEK_END);
    uint32_t num_bytes = uint32_t(ftell(file));
    rewind(file);
    uint8_t* buffer = static_cast<uint8_t*>(allocate(num_bytes));
    bool is_read = fread(buffer, 1, num_bytes, file) == num_bytes;
    fclose(file);
    if (!is_read || create(buffer, num_bytes) != 0) {
      fprintf(stderr, "%s: not taken\n", words[place]);
      return 1;
    }
    while (run_slice(100000) == 0) {
    }
    uint8_t* found = results();
    uint64_t found_bytes;
    memcpy(&found_bytes, found + 16, sizeof found_bytes);
    char path[4096];
    snprintf(path, sizeof path, "%s.out", words[place]);
    file = fopen(path, "wb");
    if (file == nullptr || fwrite(found, 1, found_bytes, file) != found_bytes || fclose(file) != 0) {
      perror(words[place]);
      return 1;
    }
    free(buffer);
  }
  return 0;
}
