#include "cc/table/table_errors.h"

#include <gtest/gtest.h>

namespace sok {
namespace {

TEST(TableErrorsTest, AnErrorNamesItsVariableOnce) {
  TableOptions table;
  table.name = "items";
  EXPECT_TRUE(NamedError(table, OkStatus()).ok());
  const Status once = NamedError(table, Internal("cannot launch a kernel"));
  EXPECT_EQ(once.code(), StatusCode::kInternal);
  EXPECT_EQ(once.message(), "Embedding variable 'items': cannot launch a kernel");
  EXPECT_EQ(NamedError(table, once).message(), once.message());
  EXPECT_EQ(NamedError(table, once).code(), StatusCode::kInternal);
  const Status full = TableIsFull(table, 3, 1);
  EXPECT_EQ(NamedError(table, full).message(), full.message());
}

TEST(TableErrorsTest, AnotherVariablesNameDoesNotStandForItsOwn) {
  TableOptions table;
  table.name = "item";
  TableOptions other;
  other.name = "items";
  EXPECT_EQ(NamedError(table, NamedError(other, Internal("no"))).message(),
            "Embedding variable 'item': Embedding variable 'items': no");
  EXPECT_EQ(NamedError(table, Internal("no optimizer 'item'")).message(),
            "Embedding variable 'item': no optimizer 'item'");
}

}  // namespace
}  // namespace sok
