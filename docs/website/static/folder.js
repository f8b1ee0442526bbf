// A browser lets a page from a folder read no other page, so excerpts of search results are left out there.
if (location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
