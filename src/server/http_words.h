// SPDX-License-Identifier: Apache-2.0
//
// What the HTTP library's errors mean, in words that say what to look at.
#pragma once

#include <httplib.h>

#include <string>

namespace segue {

inline std::string ErrorInWords(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection: return "nobody listens there, or the host is not reached";
    case httplib::Error::ConnectionTimeout: return "it did not accept a connection in time";
    case httplib::Error::Read: return "it did not answer in time, or dropped the connection";
    case httplib::Error::Write: return "it dropped the connection, or took no request in time";
    case httplib::Error::Canceled: return "it answered too slowly, or with too much";
    default: return "the exchange failed (" + httplib::to_string(error) + ")";
  }
}

}  // namespace segue
