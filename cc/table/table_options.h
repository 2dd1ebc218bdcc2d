#ifndef SOK_CC_TABLE_TABLE_OPTIONS_H_
#define SOK_CC_TABLE_TABLE_OPTIONS_H_

#include <cstdint>
#include <string>

#include "cc/initializers/initializer.h"

namespace sok {

// What a table is made from. Everything here is fixed for the table's life.
struct TableOptions {
  std::string name;           // the variable's unique name; every error names it
  int64_t dim = 0;            // floats in a row, in [1, Table::kMaxDim]
  int64_t capacity = 0;       // rows on this rank; 0 grows without bound
  bool use_hashtable = true;  // false: the key is the row (key / ranks), and capacity is needed
  int rank = 0;               // this rank among `ranks`; it owns the keys with OwnerOf(key) == rank
  int ranks = 1;
  Initializer initializer = {};
  std::string key_dtype = "int64";  // of the ids that callers look up; the table itself holds int64
};

// Everything of `options` but the rank, in words, for errors: ranks whose tables are the same have the same
// text.
std::string Describe(const TableOptions& options);

}  // namespace sok

#endif  // SOK_CC_TABLE_TABLE_OPTIONS_H_
